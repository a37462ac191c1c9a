"""Learning models from datasets; the only room with a learner."""
