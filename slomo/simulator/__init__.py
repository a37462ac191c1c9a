"""The simulator of every access to a cache line, against which predictions are tested; import this package's files."""
