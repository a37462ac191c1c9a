"""Run one network function as a process: its description, command, output and throughput."""
