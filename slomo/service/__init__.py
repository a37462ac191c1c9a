"""The HTTP service: an orchestrator asks, a person looks; thin doors over prediction and placement."""
