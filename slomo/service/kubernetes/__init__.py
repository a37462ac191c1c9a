"""The Kubernetes part of the service: scheduler extender, what runs in the cluster, node agents."""
