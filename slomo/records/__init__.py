"""Measured data: runs, summaries of repeated runs, their provenance, and datasets.

In: `RunRecord`s of a testbed, or tables and Intel PCM recordings of others. Out: a `ProfileDataset`, in memory or as a
file. Begin with `run`, `measurement` and `dataset`; `importing/` and `pcm/` read the files of other tools.
"""
