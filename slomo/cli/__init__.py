"""The `slomo` command line: one file per command, imported only when the command is used.

In: arguments, environment, files. Out: tables or JSON on stdout, notes on stderr, an exit code. Begin with `main`;
commands are in `verbs/` and call `workflow` or, with ``--server URL``, the service.
"""
