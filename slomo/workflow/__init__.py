"""The main job as four verbs; import its files, or the names of the library itself."""
