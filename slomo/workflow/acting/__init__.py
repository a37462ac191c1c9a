"""Commands that act on a machine, shared by the command line and Python."""
