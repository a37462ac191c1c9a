"""Import tables and recordings of other tools as datasets."""
