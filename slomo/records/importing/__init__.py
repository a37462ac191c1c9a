"""Import others' tables, recordings and data as datasets."""
