"""Predict throughput and latency of network functions on a server; import from the files of this package.

In: a `ModelLibrary`, names of NFs, settings and offered loads. Out: `Prediction` for one NF, `ServerPrediction` for all
NFs of a server, `PredictionBatch` for arrays. Begin with `question`, which every interface calls; `tenants` finds the
models, `answers` calls the solvers.
"""
