"""Use many machines: bulk predictions, shared model libraries, and campaigns; external engines such as Dask compute."""
