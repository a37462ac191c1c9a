"""The tunable competitor and simple network functions in C, and the one list of their knobs."""
