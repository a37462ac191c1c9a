"""Run placements over time, and count broken SLOs on a testbed."""
