"""Input and output of placement: clusters, requests, chains and decisions, as immutable values and as documents."""
