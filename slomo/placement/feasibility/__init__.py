"""Judge mixes of network functions on a server: throughput estimates, rates, verdicts."""
