"""What was measured, as values: runs, measurements, their provenance, and the datasets made of them."""
