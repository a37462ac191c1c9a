"""Recordings of Intel PCM."""
