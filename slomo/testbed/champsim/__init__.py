"""Native code on the ChampSim simulator. Import the files of this package directly."""
