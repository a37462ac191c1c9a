"""The `slomo` command line: one file per command, imported only when the command is used.

In: arguments, environment, files. Out: tables or JSON on stdout, notes on stderr, an exit code. Begin at `main`; a
command is in `verbs/`, and calls `workflow` or, with ``--service URL``, the service.
"""
