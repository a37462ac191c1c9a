"""Numbers with their range, for the annotations of values that are read from files.

The ranges are those of the command line's options too (`slomo.cli.types`).
"""

from typing import Annotated

from msgspec import Meta

#: More instances, runs or windows than this are a slip of the pen.
MOST = 1_000_000
Count = Annotated[int, Meta(ge=0, le=MOST)]
PositiveCount = Annotated[int, Meta(ge=1, le=MOST)]
Index = Annotated[int, Meta(ge=0, le=65_535)]
Ways = Annotated[int, Meta(ge=1, le=64)]
ProcessId = Annotated[int, Meta(ge=0, le=2**31)]
WayMask = Annotated[int, Meta(ge=1, le=2**62)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Part = Annotated[float, Meta(gt=0.0, le=1.0)]
Percent = Annotated[int, Meta(ge=1, le=100)]
Seconds = Annotated[float, Meta(gt=0.0, le=1e9)]
#: Packets, requests or bits a second in millions, or billions of bytes.
Rate = Annotated[float, Meta(ge=0.0, le=1e6)]
PositiveRate = Annotated[float, Meta(gt=0.0, le=1e6)]
Name = Annotated[str, Meta(min_length=1, max_length=1000)]
