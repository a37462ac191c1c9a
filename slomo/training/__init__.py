"""Train models from datasets; no other package imports learning libraries such as scikit-learn."""
