"""Draw figures and make reports. Import the files of this package directly."""
