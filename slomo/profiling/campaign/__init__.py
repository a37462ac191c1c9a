"""Make the runs of a plan: in order, stored, resumable."""
