"""The words everything else is said in: metrics, vectors, workloads, machines, co-locations."""
