"""The operations of API v1, one file per subject."""
