"""Plans: lists of runs to make."""
