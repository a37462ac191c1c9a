"""Testbeds: the machines and simulators on which co-locations run. Import the files of this package directly."""
