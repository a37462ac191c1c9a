"""One random generator per tenant: xorshift64* (Vigna, ACM TOMS 42(4), 2016), seeded from numpy's SeedSequence."""

import numpy as np

from slomo.simulator.compilation import compiled
from slomo.simulator.state import Words

_A, _B, _C = np.uint64(12), np.uint64(25), np.uint64(27)
_MULTIPLIER = np.uint64(0x2545F4914F6CDD1D)
_TOP = np.uint64(33)


@compiled
def next_bits(states: Words, tenant: int) -> int:
    """Advance one generator and return 31 random bits."""
    x = states[tenant]
    x ^= x >> _A
    x ^= x << _B
    x ^= x >> _C
    states[tenant] = x
    return np.int64((x * _MULTIPLIER) >> _TOP)  # type: ignore[return-value]


def seeded(seed: int, tenants: int) -> Words:
    """Return one non-zero generator state per tenant, shape ``(tenants,)``."""
    children = np.random.SeedSequence(seed).spawn(tenants)
    states = [child.generate_state(1, np.uint64)[0] | np.uint64(1) for child in children]
    return np.array(states, dtype=np.uint64)
