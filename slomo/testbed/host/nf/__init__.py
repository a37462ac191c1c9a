"""One network function's process: its description, command, sockets and readings."""
