"""Run slomo's network functions on the ChampSim simulator; import this package's files."""
