"""Work of network functions per packet, and the layout of their data."""
