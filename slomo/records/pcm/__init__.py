"""Read recordings of Intel PCM."""
