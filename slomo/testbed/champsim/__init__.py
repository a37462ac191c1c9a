"""Native code on the ChampSim simulator; import its files."""
