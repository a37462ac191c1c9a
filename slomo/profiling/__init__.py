"""Decide which runs to measure (plans), and make them (campaigns); import the files of this package."""
