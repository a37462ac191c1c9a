"""Trained models of network functions (NFs); import the files of this package."""
