"""Making the runs of a plan: ordered, stored, resumable."""
