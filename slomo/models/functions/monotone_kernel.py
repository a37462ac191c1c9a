"""Compiled code of `slomo.models.functions.monotone` for rows of different models; results are equal to the last bit.

Logarithms and hyperbolic tangents are left to numpy between the calls: their last bits differ between implementations.
`limits` and `weights` are `MonotoneSensitivity.rows` of the models, `who` is the model of each row.
"""

import numpy as np


def lay_out_rows(limits, who, neighbours, pressure, scaled):  # type: ignore[no-untyped-def]
    """Compute the numbers whose logarithms are the inputs of the models; `pressure` has shape (rows, pressures)."""
    features = scaled.shape[1]
    for i in range(len(who)):
        row = limits[who[i]]
        for f in range(features):
            value = pressure[i, f] if f < pressure.shape[1] else neighbours[i]
            scaled[i, f] = min(max(value, row[f]), row[features + f]) / row[2 * features + f] + 1.0


def weigh_rows(weights, who, logarithms, sums):  # type: ignore[no-untyped-def]
    """Compute the weighted sum of each unit of each row's network, with numpy's order and precision."""
    features, count = logarithms.shape[1], sums.shape[1]
    for i in range(len(who)):
        total, slopes = sums[i], weights[who[i]]  # as slices: other indices make the loops twice as slow
        offset = slopes[features * count :]
        for u in range(count):
            total[u] = logarithms[i, 0] * slopes[u]
        for f in range(1, features):
            slope = slopes[f * count :]
            for u in range(count):
                total[u] += logarithms[i, f] * slope[u]
        for u in range(count):
            total[u] += offset[u]


def leave_rows(limits, weights, who, tangents, mpps):  # type: ignore[no-untyped-def]
    """Compute throughputs [Mpps]: the last number of a model's limits minus what its units subtract, times solo."""
    count = tangents.shape[1]
    for i in range(len(who)):
        tangent, row, height = tangents[i], limits[who[i]], weights[who[i], weights.shape[1] - count :]
        taken = tangent[0] * height[0]
        for u in range(1, count):
            taken += tangent[u] * height[u]
        mpps[i] = row[len(row) - 2] * min(max(row[len(row) - 1] - np.float64(taken), 0.0), 1.0)
