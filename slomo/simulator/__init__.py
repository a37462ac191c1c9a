"""The line-level simulator. Import the files of this package directly."""
