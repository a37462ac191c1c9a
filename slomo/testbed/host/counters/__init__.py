"""Where contentiousness vectors come from on a real machine: one reader per source."""
