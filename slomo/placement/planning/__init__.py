"""Plan whole batches, with bounds on the optimum: column generation, pricing, rounding, packing."""
