"""Run slomo's network functions on the ChampSim simulator; import the modules, not the package."""
