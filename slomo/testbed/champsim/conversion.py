"""Convert a recording to ChampSim's trace: 64-byte records with registers, branches and addresses.

An instruction with a memory operand becomes a load, a computation and a store, as a core splits it. In a single record,
the load would wait for registers that only the computation needs. Record format: ChampSim, inc/trace_instruction.h.
ChampSim infers a branch's kind from its registers (inc/instruction.h).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.errors import ConfigurationError
from slomo.extras import need
from slomo.testbed.champsim.recording import LOAD, STORE, Recording

RECORD = np.dtype(
    [
        ("ip", "<u8"),
        ("is_branch", "u1"),
        ("taken", "u1"),
        ("destination", "u1", 2),
        ("source", "u1", 4),
        ("stores", "<u8", 2),
        ("loads", "<u8", 4),
    ]
)
STACK_POINTER, FLAGS, INSTRUCTION_POINTER = 6, 25, 26
_SPECIAL = {"rsp": STACK_POINTER, "rflags": FLAGS, "rip": INSTRUCTION_POINTER}
_LOADED, _COMPUTED, _FIRST_FREE = 200, 201, 64
#: Instructions that only move loaded data.
_MOVES = ("mov", "pop", "lea", "ret", "leave", "call", "jmp", "push", "cmov", "lddqu")
_LINE_B = 64


@dataclass(frozen=True)
class Instruction:
    """Registers that one instruction reads and writes, as numbers in ChampSim's trace format."""

    #: Registers that form the address, other registers read, and registers written.
    addressing: tuple[int, ...]
    read: tuple[int, ...]
    written: tuple[int, ...]
    #: ``""``, ``"direct"``, ``"indirect"``, ``"conditional"``, ``"call"``, ``"indirect-call"`` or ``"return"``.
    branch: str = ""
    #: Whether the instruction only loads data into a register.
    moves: bool = False


_BRANCH_REGISTERS: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "direct": ((INSTRUCTION_POINTER,), (INSTRUCTION_POINTER,)),
    "indirect": ((_LOADED,), (INSTRUCTION_POINTER,)),
    "conditional": ((INSTRUCTION_POINTER, FLAGS), (INSTRUCTION_POINTER,)),
    "call": ((INSTRUCTION_POINTER, STACK_POINTER), (INSTRUCTION_POINTER, STACK_POINTER)),
    "indirect-call": ((INSTRUCTION_POINTER, STACK_POINTER, _LOADED), (INSTRUCTION_POINTER, STACK_POINTER)),
    "return": ((STACK_POINTER,), (INSTRUCTION_POINTER, STACK_POINTER)),
}


class Disassembler:
    """Reads the instructions of a static x86-64 program."""

    def __init__(self, program: Path) -> None:
        need("capstone")
        import capstone

        self._capstone = capstone
        self._engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self._engine.detail = True
        self._image = program.read_bytes()
        self._segments = _segments(self._image, program)
        self._numbers: dict[str, int] = {}

    def __call__(self, ip: int, size: int) -> Instruction:
        """Return the instruction at an address; one without registers for addresses outside the program."""
        for start, end, offset in self._segments:
            if start <= ip < end:
                code = self._image[offset + ip - start : offset + ip - start + size]
                instruction = next(self._engine.disasm(code, ip), None)
                return Instruction((), (), ()) if instruction is None else self._described(instruction)
        return Instruction((), (), ())

    def _described(self, item: Any) -> Instruction:
        x86 = self._capstone.x86
        read, written = item.regs_access()
        addressing = {
            register
            for operand in item.operands
            if operand.type == x86.X86_OP_MEM
            for register in (operand.mem.base, operand.mem.index)
            if register
        }
        names = item.reg_name
        own = {self._number(names(register)) for register in addressing} - {INSTRUCTION_POINTER}
        read = {self._number(names(register)) for register in read}
        used = {self._number(names(o.reg)) for o in item.operands if o.type == x86.X86_OP_REG}
        others = (read - own) | (read & own & used)
        return Instruction(
            tuple(sorted(own)),
            tuple(sorted(others - {INSTRUCTION_POINTER})),
            tuple(sorted({self._number(names(register)) for register in written} - {INSTRUCTION_POINTER})),
            self._branch(item),
            item.mnemonic.startswith(_MOVES),
        )

    def _branch(self, item: Any) -> str:
        capstone, x86 = self._capstone, self._capstone.x86
        direct = bool(item.operands) and item.operands[0].type == x86.X86_OP_IMM
        if item.group(capstone.CS_GRP_RET):
            return "return"
        if item.group(capstone.CS_GRP_CALL):
            return "call" if direct else "indirect-call"
        if item.group(capstone.CS_GRP_JUMP):
            return ("direct" if direct else "indirect") if item.mnemonic == "jmp" else "conditional"
        return ""

    def _number(self, name: str) -> int:
        whole = _whole_register(name)
        return _SPECIAL.get(whole) or self._numbers.setdefault(whole, _FIRST_FREE + len(self._numbers))


def convert(recording: Recording, instruction: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return a recording as ChampSim's records, and how many records precede each instruction.

    `instruction`: maps (address, size) to an :class:`Instruction`, for instance a :class:`Disassembler`.
    """
    count = len(recording.ip)
    if count == 0:
        raise ConfigurationError("the recording has no instructions, needed 1 or more", hint="record it again")
    references = {  # where each instruction's references start, and all addresses; a modification counts as both
        column: (np.searchsorted(recording.owner[chosen], np.arange(count + 1)), recording.address[chosen])
        for column, chosen in (("loads", recording.kind != STORE), ("stores", recording.kind != LOAD))
    }
    taken = np.zeros(count, dtype=bool)
    taken[:-1] = recording.ip[1:] != recording.ip[:-1] + recording.size[:-1]
    counts = [np.diff(start) for start, _ in references.values()]
    shape = np.stack([recording.ip, recording.size, *counts], axis=1)
    kinds, kind = np.unique(shape.astype(np.uint64), axis=0, return_inverse=True)
    templates = [
        _template(int(ip), instruction(int(ip), int(size)), int(reads), int(writes))
        for ip, size, reads, writes in kinds
    ]
    lengths = np.array([len(template) for template, _ in templates], dtype=np.int64)
    place = np.concatenate(([0], np.cumsum(lengths[kind.ravel()])))
    records = np.zeros(place[-1], dtype=RECORD)
    order = np.argsort(kind.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(kind.ravel(), minlength=len(kinds)))
    for number, (template, addresses) in enumerate(templates):
        members = order[ends[number - 1] if number else 0 : ends[number]]
        for step, row in enumerate(template):
            records[place[members] + step] = row
        if template[-1]["is_branch"]:
            records["taken"][place[members] + len(template) - 1] = taken[members]
        for step, column, slot, which in addresses:
            start, address = references[column]
            records[column][place[members] + step, slot] = address[start[members] + which]
    return records, place[:-1]


def _template(
    ip: int, what: Instruction, loads: int, stores: int
) -> tuple[NDArray[Any], list[tuple[int, str, int, int]]]:
    """Return an instruction's records without addresses, and which record each address belongs to."""
    rows: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    places: list[tuple[int, str, int, int]] = []
    split = loads > 0 and not what.moves and not what.branch
    load_rows = -(-loads // 4) if split or loads > 4 else 0
    for number in range(load_rows):
        rows.append((what.addressing, (_LOADED,)))
        places += [(number, "loads", slot, 4 * number + slot) for slot in range(min(4, loads - 4 * number))]
    body = len(rows)
    if what.branch:
        rows.append(_branch_registers(what))
    elif load_rows:
        rows.append(((_LOADED, *what.read), what.written))
    else:
        rows.append((what.addressing + what.read, what.written))
    if loads and not load_rows:
        places += [(body, "loads", slot, slot) for slot in range(loads)]
    placed = 0
    if stores and not split and (what.branch or stores <= 2):
        placed = min(stores, 2)
        places += [(body, "stores", slot, slot) for slot in range(placed)]
    while placed < stores and not what.branch:
        some = min(2, stores - placed)
        rows.append(((*what.addressing, *(what.written[:1] if split else what.read[:1])), ()))
        places += [(len(rows) - 1, "stores", slot, placed + slot) for slot in range(some)]
        placed += some
    template = np.zeros(len(rows), dtype=RECORD)
    template["ip"] = ip
    for number, (read, targets) in enumerate(rows):
        sources = tuple(dict.fromkeys(read))[:4]
        template["source"][number, : len(sources)] = sources
        template["destination"][number, : len(targets[:2])] = targets[:2]
    template["is_branch"][body] = bool(what.branch)
    return template, places


def _branch_registers(what: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the registers by which ChampSim recognises a branch's kind; an indirect branch reads its target."""
    read, written = _BRANCH_REGISTERS[what.branch]
    if _LOADED not in read:
        return read, written
    target = tuple(item for item in what.addressing + what.read if item not in _SPECIAL.values())[:1] or (_LOADED,)
    return tuple(item for item in read if item != _LOADED) + target, written


def resident_set(recording: Recording, lines: int) -> NDArray[Any]:
    """Return one load for each of the `lines` cache lines that were used last before the recording.

    ChampSim starts with empty caches. If fewer than `lines` lines were used, they are loaded repeatedly, so that every
    trace begins with equally many loads and all warm-ups end at about the same time.
    """
    used = recording.history[-lines:]
    records = np.zeros(lines, dtype=RECORD)
    records["ip"] = 0x1000
    records["destination"][:, 0] = _LOADED
    if len(used):
        repeated = np.tile(used, -(-lines // len(used)))[-lines:]
        records["loads"][:, 0] = repeated * np.uint64(_LINE_B)
    return records


def lines_of(records: NDArray[Any]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the cache lines that records access, in order, and the index of the record of each access."""
    both = np.concatenate([records["loads"], records["stores"]], axis=1)
    owner, slot = np.nonzero(both)
    return both[owner, slot] // np.uint64(_LINE_B), owner


def working_set(records: NDArray[Any]) -> list[tuple[int, float]]:
    """Return pairs of a window length in records and the mean number of lines in such a window (Denning, CACM 1968)."""
    lines, owner = lines_of(records)
    curve, length = [(0, 0.0)], 256
    while length < len(records):
        starts = np.linspace(0, len(records) - length, 6).astype(np.int64)
        counts = []
        for start in starts:
            first, last = np.searchsorted(owner, (start, start + length))
            counts.append(len(np.unique(lines[first:last])))
        curve.append((length, float(np.mean(counts))))
        length *= 2
    curve.append((len(records), float(len(np.unique(lines)))))
    return curve


def _whole_register(name: str) -> str:
    """Return the full register of a partial one.

    >>> [_whole_register(name) for name in ("eax", "r8d", "sil", "xmm3", "ymm3", "rflags")]
    ['rax', 'r8', 'rsi', 'xmm3', 'xmm3', 'rflags']
    """
    if name[:3] in ("ymm", "zmm"):
        return f"x{name[1:]}"
    if name.startswith("r") and name[1:2].isdigit():
        return name.rstrip("dwb")
    if name in ("eflags", "rflags"):
        return "rflags"
    legacy = {"a": "rax", "b": "rbx", "c": "rcx", "d": "rdx"}
    core = name.lstrip("re") if len(name) == 3 else name
    if len(core) == 2 and core[0] in legacy and core[1] in "xlh":
        return legacy[core[0]]
    for part in ("si", "di", "bp", "sp", "ip"):
        if core in (part, f"{part}l"):
            return f"r{part}"
    return name


def _segments(image: bytes, program: Path) -> list[tuple[int, int, int]]:
    """Return the loaded segments of a 64-bit ELF program: begin, end, file offset."""
    if image[:5] != b"\x7fELF\x02":
        raise ConfigurationError(f"'{program}' is no 64-bit ELF program", hint="trace the portable build on x86-64")
    start = int.from_bytes(image[32:40], "little")
    size, count = int.from_bytes(image[54:56], "little"), int.from_bytes(image[56:58], "little")
    segments = []
    for number in range(count):
        header = image[start + number * size : start + (number + 1) * size]
        kind, offset, address, length = (
            int.from_bytes(header[a:b], "little") for a, b in ((0, 4), (8, 16), (16, 24), (32, 40))
        )
        if kind == 1:
            segments.append((address, address + length, offset))
    return segments
