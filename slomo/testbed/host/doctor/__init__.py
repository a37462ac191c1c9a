"""`slomo doctor`: find out what this host can measure, and what would disturb measurements."""
