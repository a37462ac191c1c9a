"""Use many machines: predict millions of mixes, share models, and measure on many hosts (campaigns).

In: parquet files of mixes, a store's address, or a file of hosts and a plan. Out: parquet files of predictions, a
library, or one dataset of all hosts. Begin at `bulk`, `shared_library` or `campaign`.
"""
