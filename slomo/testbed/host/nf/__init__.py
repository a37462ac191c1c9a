"""The process of one network function: its description, command, sockets and readings."""
