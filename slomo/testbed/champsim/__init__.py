"""Real code on an established simulator; import its files."""
