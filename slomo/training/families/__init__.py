"""Model families: methods that learn throughput from pressure, found by name."""
