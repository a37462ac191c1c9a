"""Tables, recordings and data of others as datasets."""
