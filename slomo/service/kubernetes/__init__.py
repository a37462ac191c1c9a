"""The Kubernetes part of the service: scheduler extender, view of the cluster, node agents."""
