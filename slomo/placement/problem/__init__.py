"""What is asked and what is answered: clusters, requests, chains, decisions, as frozen values and documents."""
