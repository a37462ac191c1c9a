"""One file per command; those that list and show what there is in `inventory`."""
