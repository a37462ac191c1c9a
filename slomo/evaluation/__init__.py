"""The evaluation room: predictions compared with tables of measurements; import its files."""
