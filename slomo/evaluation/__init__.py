"""Compare predictions with measurements; import the files of this package.

In: a `ModelLibrary` and measured mixes, or rows of an imported table. Out: an `Evaluation` with errors, coverage of
intervals and reliability per model. Begin at `evaluate`; tables are predicted by `rows`.
"""
