"""The HTTP service: prediction and placement for orchestrators (such as Kubernetes) and people."""
