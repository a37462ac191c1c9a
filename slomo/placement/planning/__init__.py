"""Plans for whole batches, with bounds: columns, prices, rounding, packing."""
