"""Placement: put requests on the servers of a cluster so that SLOs hold, by predictions alone."""
