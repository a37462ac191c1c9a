"""Input and output of placement: clusters, requests, chains, decisions, as frozen values and documents."""
