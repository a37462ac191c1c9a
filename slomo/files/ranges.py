"""Number types with ranges, for the fields of values that are read from files.

The command line's options have the same ranges (`slomo.cli.types`).
"""

from typing import Annotated

from msgspec import Meta

#: Largest number of instances, runs or windows; larger numbers count as typing errors.
MOST = 1_000_000
Count = Annotated[int, Meta(ge=0, le=MOST)]
PositiveCount = Annotated[int, Meta(ge=1, le=MOST)]
Index = Annotated[int, Meta(ge=0, le=65_535)]
Ways = Annotated[int, Meta(ge=1, le=64)]
ProcessId = Annotated[int, Meta(ge=1, le=2**31 - 1)]  # the kernel takes 0 for whoever writes it
WayMask = Annotated[int, Meta(ge=1, le=2**62)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Part = Annotated[float, Meta(gt=0.0, le=1.0)]
Percent = Annotated[int, Meta(ge=1, le=100)]
Seconds = Annotated[float, Meta(gt=0.0, le=1e9)]
#: A rate: packets, requests or bits per second in millions, or bytes per second in billions.
Rate = Annotated[float, Meta(ge=0.0, le=1e6)]
PositiveRate = Annotated[float, Meta(gt=0.0, le=1e6)]
Name = Annotated[str, Meta(min_length=1, max_length=1000)]
