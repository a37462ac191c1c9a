"""Read and write files safely: a file is written completely or not at all, and locks end with their holder.

In: paths, and classes whose annotations state ranges. Out: values, or errors that name file, line and field. Begin with
`documents`; `durable` writes files.
"""
