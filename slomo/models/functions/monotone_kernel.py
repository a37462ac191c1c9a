"""Compiled code of `slomo.models.functions.monotone` for rows of different models; results are equal to the last bit.

Logarithms and hyperbolic tangents are left to numpy between the calls: their last bits differ between implementations.
`units` are rows of `MonotoneSensitivity`, `who` is the model of each row.
"""

import numpy as np


def lay_out_rows(units, who, neighbours, pressure, scaled):  # type: ignore[no-untyped-def]
    """Compute the numbers whose logarithms are the inputs of the models; `pressure` has shape (rows, pressures)."""
    features = scaled.shape[1]
    for i in range(len(who)):
        row = units[who[i]]
        for f in range(features):
            value = pressure[i, f] if f < pressure.shape[1] else neighbours[i]
            scaled[i, f] = min(max(value, row[f]), row[features + f]) / row[2 * features + f] + 1.0


def weigh_rows(units, who, logarithms, sums):  # type: ignore[no-untyped-def]
    """Compute the weighted sum of each unit of each row's network, with numpy's order and precision."""
    features, count = logarithms.shape[1], sums.shape[1]
    for i in range(len(who)):
        total, slopes = sums[i], units[who[i], 3 * features :]  # as slices: other indices make the loops twice as slow
        offset = slopes[features * count :]
        for u in range(count):
            total[u] = logarithms[i, 0] * np.float32(slopes[u])
        for f in range(1, features):
            slope = slopes[f * count :]
            for u in range(count):
                total[u] += logarithms[i, f] * np.float32(slope[u])
        for u in range(count):
            total[u] += np.float32(offset[u])


def leave_rows(units, who, tangents, mpps):  # type: ignore[no-untyped-def]
    """Compute throughputs [Mpps]: the last number of a model's row minus what its units subtract, times solo."""
    count = tangents.shape[1]
    for i in range(len(who)):
        tangent, last = tangents[i], units[who[i], units.shape[1] - 2 - count :]  # heights, then two numbers
        taken = tangent[0] * np.float32(last[0])
        for u in range(1, count):
            taken += tangent[u] * np.float32(last[u])
        mpps[i] = last[count] * min(max(last[count + 1] - np.float64(taken), 0.0), 1.0)
