"""Testbeds that spoil another one on purpose: measurement noise, and failures.

Variation comes by wrapping, not by options of every back end (google/vizier's noisy and fault-injecting experimenters).
"""

import hashlib
import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from slomo.errors import InvalidValueError, TestbedError
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.testbed.base import Testbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.metrics import METRICS, Cap
from slomo.vocabulary.vector import MetricVector


class NoisyTestbed:
    """Another testbed with multiplicative noise on every number; the record keeps the truth.

    Parameters
    ----------
    inner : Testbed
        What is measured.
    seed : int
        Seed of the noise; together with the run's seed and co-location it decides every draw.
    throughput : float
        Standard deviation of the logarithm of throughput and latency, 0 to 1.
    metrics : float
        The same for every metric, 0 to 1.

    Raises
    ------
    InvalidValueError
        For noise outside its range.

    Examples
    --------
    >>> from slomo.testing.builders import ToyTestbed, toy_plan
    >>> run = NoisyTestbed(ToyTestbed(), seed=1).run(toy_plan().colocations[0])
    >>> run.truth.target.throughput_mpps, run.target.throughput_mpps != 5.0
    (5.0, True)
    """

    def __init__(self, inner: Testbed, seed: int = 0, *, throughput: float = 0.01, metrics: float = 0.03) -> None:
        for name, value in (("throughput", throughput), ("metrics", metrics)):
            if not 0.0 <= value <= 1.0:
                raise InvalidValueError(f"noisy testbed: {name} noise is {value}, needed 0 to 1")
        self.inner = inner
        self.seed = seed
        self.throughput = throughput
        self.metrics = metrics
        self.name = f"noisy-{inner.name}"
        self.exclusive = inner.exclusive

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Run the inner testbed and disturb what it reports."""
        truth = self.inner.run(colocation, seed=seed)
        digest = hashlib.sha256(f"{self.seed}:{seed}:{colocation.key}".encode()).digest()
        generator = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        alone = None if truth.alone is None else self._phase(truth.alone, generator)
        beside = None if truth.beside is None else self._phase(truth.beside, generator)
        undisturbed = truth if truth.truth is None else truth.truth
        return replace(truth, alone=alone, beside=beside, truth=undisturbed)

    def check(self, colocation: Colocation) -> None:
        """Raise what the inner testbed knows beforehand to be impossible, where it can tell."""
        getattr(self.inner, "check", _accept)(colocation)

    def environment(self) -> Mapping[str, Any]:
        """Return the inner environment and the noise; two amounts of noise must not be merged."""
        noise = {"seed": self.seed, "throughput": self.throughput, "metrics": self.metrics}
        return {**self.inner.environment(), "testbed": self.name, "noise": noise}

    def estimate_s(self, colocation: Colocation) -> float:
        """Return the inner testbed's estimate [s]."""
        return self.inner.estimate_s(colocation)

    def _phase(self, phase: Phase, generator: np.random.Generator) -> Phase:
        return Phase(
            tenants=tuple(self._sample(sample, generator) for sample in phase.tenants),
            socket=self._vector(phase.socket, generator),
            system=None if phase.system is None else self._vector(phase.system, generator),
            duration_s=phase.duration_s,
        )

    def _sample(self, sample: TenantSample, generator: np.random.Generator) -> TenantSample:
        factors = np.exp(generator.normal(0.0, self.throughput, 2))
        latency: dict[str, Any] = {
            name: None if value is None else value * float(factors[1])
            for name, value in vars(sample).items()
            if name.startswith("latency_")
        }
        vector = self._vector(sample.vector, generator)
        noisy = sample.throughput_mpps * float(factors[0])
        return replace(sample, throughput_mpps=noisy, vector=vector, **latency)

    def _vector(self, vector: MetricVector, generator: np.random.Generator) -> MetricVector:
        factors = np.exp(generator.normal(0.0, self.metrics, len(vector)))
        values = {name: value * float(factor) for (name, value), factor in zip(vector.items(), factors, strict=True)}
        shares = {name: min(1.0, value) for name, value in values.items() if METRICS[name].cap is Cap.ONE}
        return MetricVector(values | shares, scope=vector.scope)


class FailingTestbed:
    """Another testbed that fails now and then, as cables and daemons do.

    Parameters
    ----------
    inner : Testbed
        What runs when nothing fails.
    every : int or None
        Every so many calls of `run` fail, counted from 1; 1 fails always.
    keys : collection of str
        Keys of co-locations that fail always.
    error : Exception or None
        What is raised; a `TestbedError` if not given.

    Examples
    --------
    >>> from slomo.testing.builders import ToyTestbed, toy_plan
    >>> FailingTestbed(ToyTestbed(), every=1).run(toy_plan().colocations[0])
    Traceback (most recent call last):
        ...
    slomo.errors.TestbedError: lpm@64B,100000f alone on toy: the testbed failed on purpose
    """

    def __init__(
        self, inner: Testbed, every: int | None = None, keys: Collection[str] = (), error: Exception | None = None
    ) -> None:
        if every is not None and every < 1:
            raise InvalidValueError(f"failing testbed: every is {every}, needed 1 or more")
        self.inner = inner
        self.every = every
        self.keys = frozenset(keys)
        self.error = error
        self.name = f"failing-{inner.name}"
        self.exclusive = inner.exclusive
        self._calls = 0
        self._lock = threading.Lock()

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Fail, or run the inner testbed."""
        with self._lock:
            self._calls += 1
            unlucky = self.every is not None and self._calls % self.every == 0
        if unlucky or colocation.key in self.keys:
            raise self.error or TestbedError(f"{colocation.label}: the testbed failed on purpose")
        return self.inner.run(colocation, seed=seed)

    def check(self, colocation: Colocation) -> None:
        """Raise what the inner testbed knows beforehand to be impossible, where it can tell."""
        getattr(self.inner, "check", _accept)(colocation)

    def environment(self) -> Mapping[str, Any]:
        """Return the inner environment: what succeeds is as good as ever."""
        return self.inner.environment()

    def estimate_s(self, colocation: Colocation) -> float:
        """Return the inner testbed's estimate [s]."""
        return self.inner.estimate_s(colocation)


def _accept(colocation: Colocation) -> None:
    """Accept any co-location: this testbed cannot tell before it runs."""
