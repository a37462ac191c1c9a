"""What network functions do for each packet, and where their data lies."""
