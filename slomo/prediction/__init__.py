"""Predict throughput and latency of network functions on a server; import from the files of this package.

In: a `ModelLibrary`, names of NFs, what is set and offered. Out: `Prediction` for one NF, `ServerPrediction` for all,
`PredictionBatch` for arrays. Begin at `question`, which every interface calls; `tenants` finds the models, `answers`
asks the solver.
"""
