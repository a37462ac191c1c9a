"""Learning models from datasets; the only room that imports learners."""
