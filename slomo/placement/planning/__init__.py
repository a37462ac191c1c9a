"""Whole plans with a bound: columns, prices, rounding, packing."""
