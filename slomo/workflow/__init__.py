"""The main job as four verbs; import its files, or the same names from `slomo`."""
