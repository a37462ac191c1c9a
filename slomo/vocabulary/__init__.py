"""Basic types: metrics, vectors, workloads, machines, co-locations."""
