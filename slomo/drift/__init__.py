"""Notice that predictions no longer agree with measurements, and correct the models.

In: models, and live measurements one by one. Out: alarms that say what changed, correction factors, and a refitted
`NFModel`. Begin at `monitor`; `refit` mends a model from a few new runs.
"""
