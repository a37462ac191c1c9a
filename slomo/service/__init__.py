"""The HTTP service: prediction and placement for orchestrators (such as Kubernetes) and people.

In: requests to API v1, of the Kubernetes scheduler, and of browsers. Out: JSON documents, pages, metrics; the placed
cluster is kept in SQLite. Begin with `application`, then read `door/` (steps of each request) and `api/` (one file per
subject).
"""
