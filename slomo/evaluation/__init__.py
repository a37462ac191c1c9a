"""Compare predictions with measurements; import the files of this package."""
