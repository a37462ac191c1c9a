"""Place requests on the servers of a cluster so that every SLO is kept, using predictions only."""
