"""The Kubernetes scheduler extender, and its view of pods and nodes."""
