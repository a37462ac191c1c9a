"""Policies of placement, one file each."""
