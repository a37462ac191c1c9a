"""Testbeds, on which co-locations run; import its files."""
