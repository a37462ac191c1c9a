"""Sources of contentiousness vectors on a real machine, one reader each."""
