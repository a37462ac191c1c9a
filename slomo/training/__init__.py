"""Train models from datasets; only this package imports learning libraries such as scikit-learn.

In: a `ProfileDataset`. Out: a `ModelLibrary`, which has for each NF the sensitivity by every family, its own pressure,
the server response and calibrated intervals. Begin with `training`; `families/` has one file per family.
"""
