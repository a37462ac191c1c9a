"""Functions behind slomo's main commands (profile, train, predict, ...); import them from these files or `slomo`."""
