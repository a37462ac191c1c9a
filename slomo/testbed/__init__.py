"""Testbeds: simulators and real machines on which network functions are run together; import this package's files."""
