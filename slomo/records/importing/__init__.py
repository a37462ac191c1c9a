"""Import tables and recordings from other tools as datasets."""
