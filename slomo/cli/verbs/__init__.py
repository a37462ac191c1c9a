"""One file per command; listing commands are in `inventory`."""
