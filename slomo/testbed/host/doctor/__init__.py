"""Check what this host can measure, and what would disturb measurements."""
