"""What network functions do per packet, and where their data lies."""
