"""Predict all NFs of a server together: find pressures and throughputs that agree with each other (the equilibrium).

In: models with a `ServerResponse` (or `PartitionResponse`), and what is set and offered on the server. Out: rates,
pressures, intervals and convergence. Begin at `server` (arrays of servers) or `one_server`; `rounds` and its compiled
twin `lanes` iterate, `partition` solves divided caches.
"""
