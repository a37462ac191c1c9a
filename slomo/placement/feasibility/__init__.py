"""Feasibility of mixes on a server: throughput estimates, rates, verdicts."""
