"""The functions behind slomo's main verbs; import them from these files, or from `slomo`."""
