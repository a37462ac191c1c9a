"""Place requests (network functions with SLOs) on the servers of a cluster so that predictions keep every SLO."""
