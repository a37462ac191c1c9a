"""Measured data: runs, their summaries, where they come from, and datasets of them.

In: `RunRecord`s of a testbed, or others' tables and recordings of Intel PCM. Out: a `ProfileDataset`, in memory or as a
file. Begin at `run`, `measurement` and `dataset`; `importing/` and `pcm/` read what others wrote.
"""
