"""Clusters, requests, chains and decisions, as immutable values and as documents."""
