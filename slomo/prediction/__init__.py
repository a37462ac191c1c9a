"""Predict throughput and latency of network functions on a server; import from the files of this package."""
