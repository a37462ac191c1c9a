"""The HTTP service: prediction and placement for orchestrators (such as Kubernetes) and people.

In: requests of API v1, of the scheduler of Kubernetes, and of browsers. Out: JSON documents, pages, metrics; what is
placed is kept in SQLite. Begin at `application`, then `door/` (the way of each request) and `api/` (one file per
subject).
"""
