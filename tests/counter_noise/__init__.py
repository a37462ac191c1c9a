"""What real counter tools make of a truth: rounding, multiplexing, samples that are missing, samples that come late."""
