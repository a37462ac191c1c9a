"""Plan whole batches of requests by mixes, with a lower bound on the number of servers."""
