"""Acting, from files and names: what the command line and Python share."""
