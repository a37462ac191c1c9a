"""The commands of `slomo`, one file each; the commands that list or show things are in `inventory`."""
