"""Read and write files safely: completely or not at all, with locks that end with their holder.

In: paths, and classes whose annotations state ranges. Out: values, or errors that name file, line and field. Begin at
`documents`; `durable` writes.
"""
