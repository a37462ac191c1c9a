"""Every error that slomo raises on purpose, with its exit code on the command line.

The tree (exit code in brackets; a class without one inherits its parent's)::

    SlomoError [70]
    ├── UsageError [2]                  what was asked for makes no sense
    │   ├── UnknownNameError            no such NF, machine, metric, model; carries the nearest match
    │   ├── InvalidValueError           a knob, rate or size outside its range
    │   ├── ConfigurationError          a file that cannot be read as what it claims to be (file, line, field)
    │   └── MissingExtraError           an optional package is not installed; the hint is the command
    ├── TestbedError [3]                the testbed could not run the experiment
    │   ├── StoreError                  the campaign's store is locked, corrupt or cannot be written
    │   │   └── StaleTokenError         a newer coordinator has the hosts (slomo.profiling.campaign.store)
    │   ├── IncompleteCampaignError     some runs failed, the others are kept (slomo.profiling.campaign.run)
    │   └── RefusedSettingError         the machine does not have or take what a plan sets
    ├── MeasurementError [4]            what was measured cannot be used
    │   ├── UnstableMeasurementError    replicates disagree beyond the limit
    │   ├── MissingMetricError          a metric needed was not reported (missing is not zero)
    │   └── IncompatibleMeasurementsError   measurements that must not be merged
    ├── PredictionError [5]             no prediction can be supported
    │   └── UnsupportedPredictionError
    └── ServiceError [3]                a service refused the request or was not reached (slomo.client)

The shape follows ``AxError(message, hint)`` (Ax, exceptions/core.py) and the severities of DPDK DTS, which are exit
codes.
"""

import errno
import itertools
from collections.abc import Iterable


class SlomoError(Exception):
    """Base class of all errors that slomo raises on purpose.

    Parameters
    ----------
    message : str
        What is wrong, about which object, the value got and what was needed.
    hint : str, optional
        One action the reader can take.

    Examples
    --------
    >>> print(SlomoError("no such thing", hint="look again"))
    no such thing
    hint: look again
    """

    exit_code = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # errors cross process boundaries in parallel campaigns; pickling must keep the keyword-only hint
        return (rebuilt, (type(self), self.message, self.hint))


#: Names that a hint lists at most.
_MOST_NAMES = 40
#: Characters of a wrong name that a message shows.
_LONGEST_NAME = 200


def rebuilt(kind: type[SlomoError], message: str, hint: str | None) -> SlomoError:
    """Return the error that another process or a service has reported, rebuilt from its message and hint."""
    error = kind.__new__(kind)
    SlomoError.__init__(error, message, hint=hint)
    return error


class UsageError(SlomoError):
    """The options or arguments contradict each other, or one is missing."""

    exit_code = 2


def listed(names: Iterable[str]) -> str:
    """Return names in order, as many as a message can hold, and the number of the others."""
    known = sorted(names)
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    return f"{', '.join(known[:_MOST_NAMES])}{more}" or "none"


class UnknownNameError(UsageError):
    """No object has the given name.

    `kind`: what was looked for, for instance ``"network function"``. `name`: the name given. `valid_names`: all names
    there are; the nearest one is offered. `hint`: shown instead of the nearest name. `where`: where it was looked for,
    for instance ``"among the models of silver-4110"``. `also`: what else may be given, added to the hint.

    Examples
    --------
    >>> print(UnknownNameError("metric", "L3MIS", ["L3MISS", "IPC"]))
    unknown metric 'L3MIS'
    hint: did you mean 'L3MISS'? Known: IPC, L3MISS
    """

    #: Empty in an error that another process or a service told.
    kind = name = ""

    def __init__(
        self,
        kind: str,
        name: str,
        valid_names: Iterable[str],
        *,
        hint: str | None = None,
        where: str = "",
        also: str = "",
    ) -> None:
        names = sorted(set(valid_names))
        if hint is None:
            folded = {candidate.lower(): candidate for candidate in names}
            import difflib  # only a wrong name needs it

            wrong = str(name).lower()
            near = difflib.get_close_matches(wrong, list(folded), n=5, cutoff=0.5)
            near.sort(key=lambda each: -_likeness(wrong, each))  # stable: difflib's order, the nearest first
            near += [each for each in folded if len(wrong) > 1 and wrong in each]  # 'e5' is far from 'e5-2620v4'
            guess = f"did you mean '{folded[near[0]]}'? " if near else ""
            hint = f"{guess}Known: {listed(names)}"
        shown = str(name) if len(str(name)) <= _LONGEST_NAME else f"{str(name)[:_LONGEST_NAME]}..."
        shown = shown if shown.isprintable() else ascii(shown)[1:-1]
        super().__init__(f"unknown {kind} '{shown}'{where and ' '}{where}", hint=f"{hint}{also and '. '}{also}")
        self.kind = kind
        self.name = name


def _likeness(wrong: str, right: str) -> float:
    """Return the similarity of two names, 0 to 2: common letters plus common beginning.

    Examples
    --------
    >>> _likeness("lpn", "lpm") > _likeness("lpn", "vpn")
    True
    """
    import difflib

    pairs = zip(wrong, right, strict=False)
    begin = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return difflib.SequenceMatcher(None, wrong, right).ratio() + begin / max(len(wrong), 1)


class InvalidValueError(UsageError):
    """A value outside its allowed range."""


class ConfigurationError(UsageError):
    """A file or mapping that is not a valid document of its kind."""


class MissingExtraError(UsageError, ImportError):
    """A required optional package is not installed.

    Examples
    --------
    >>> MissingExtraError("this needs the package 'numba'").exit_code
    2
    """


class TestbedError(SlomoError):
    """The testbed could not run the experiment."""

    exit_code = 3
    __test__ = False  # not a test class, whatever its name suggests to pytest


class RefusedSettingError(TestbedError):
    """A plan sets something that this machine does not have, or a value that it does not take."""

    @staticmethod
    def kind_of(problem: OSError) -> type[TestbedError]:
        """Return the kind of error that a kernel's answer to a written setting is.

        Examples
        --------
        >>> [RefusedSettingError.kind_of(OSError(number, "")).__name__ for number in (errno.EINVAL, errno.EIO)]
        ['RefusedSettingError', 'TestbedError']
        """
        return RefusedSettingError if problem.errno in _REFUSALS else TestbedError


#: Answers by which a kernel refuses a value; all others are faults of the machine or missing permissions.
_REFUSALS = (errno.EINVAL, errno.ERANGE, errno.EBUSY, errno.ENOSPC, errno.EOPNOTSUPP, errno.ENODEV)


class StoreError(TestbedError):
    """The campaign's store is locked, corrupt, or cannot be written."""


class MeasurementError(SlomoError):
    """Base class of errors about measurements that cannot be used."""

    exit_code = 4


class UnstableMeasurementError(MeasurementError):
    """Repeated measurements differ by more than the limit."""


class MissingMetricError(MeasurementError):
    """A metric that is needed was not reported; missing is unknown, not zero."""


class IncompatibleMeasurementsError(MeasurementError):
    """Measurements that must not be merged, with their differences."""


class PredictionError(SlomoError):
    """Base class of errors about predictions that measurements do not support."""

    exit_code = 5


class UnsupportedPredictionError(PredictionError):
    """The mix lies outside the range of the models' profiles."""
