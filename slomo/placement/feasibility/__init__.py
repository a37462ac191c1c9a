"""What a server can promise: throughput estimates, rates, verdicts over mixes."""
