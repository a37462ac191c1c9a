"""Detect that predictions no longer agree with measurements, and update the models."""
