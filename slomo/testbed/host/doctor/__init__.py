"""What this host can measure, and what would disturb it."""
