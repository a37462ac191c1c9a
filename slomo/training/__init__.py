"""Train models from datasets; only this package imports learning libraries such as scikit-learn."""
