"""Train models from datasets; only this package imports learning libraries such as scikit-learn.

In: a `ProfileDataset`. Out: a `ModelLibrary`: per NF sensitivity by every family, own pressure, server response, and
calibrated intervals. Begin at `training`; `families/` has one file per family.
"""
