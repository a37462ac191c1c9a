"""Place requests (network functions with SLOs) on the servers of a cluster so that predictions keep every SLO.

In: a `Cluster`, `Request`s with promises, a `ModelLibrary`. Out: a `Decision` per request: where, with which
predictions, or why not. Begin at `problem/`, then `online/placer`; `feasibility/` tells whether a mix keeps its
promises.
"""
