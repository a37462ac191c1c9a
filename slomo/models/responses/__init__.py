"""What is fitted per network function: sensitivity, latency, accelerators, server response."""
