"""Find out the properties of this machine."""
