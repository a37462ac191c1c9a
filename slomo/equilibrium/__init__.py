"""Predict all NFs of a server together: find the pressures and throughputs that are consistent (the equilibrium).

In: models with a `ServerResponse` (or `PartitionResponse`), settings and offered loads of the server. Out: rates,
pressures, intervals and convergence. Begin with `server` (arrays of servers) or `one_server`. `rounds` and its compiled
form `kernel` iterate; `partition` solves divided caches.
"""
