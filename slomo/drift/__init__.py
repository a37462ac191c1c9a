"""Notice that predictions no longer agree with measurements, and correct the models."""
