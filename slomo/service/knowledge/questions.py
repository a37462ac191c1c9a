"""Ask one library's models: waiting questions are answered in one batch, and solved mixes are cached.

A cluster has few distinct mixes, and a mix in a batch costs a tenth of a single one. Questions that arrive while the
service is busy are therefore answered together (continuous batching in language-model servers; no timer delays
anybody), and equilibria are cached by mix (`slomo.equilibrium.memo`). The numbers equal those of
`slomo.prediction.question` to the last bit. Questions with loads, explanations, unprofiled traffic, accelerators, full
ports or another model are passed to it.
"""

import asyncio
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, combinations_with_replacement, islice
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.judgement import (
    channel_load,
    codes_of_first,
    doubted,
    judged,
    moved_beside,
    moved_by_each,
    usual_error,
)
from slomo.equilibrium.memo import JointMemo
from slomo.equilibrium.server import FixedPoints, Joint
from slomo.errors import InvalidValueError, SlomoError
from slomo.models.applicability import VERDICTS as BEST_FIRST
from slomo.models.library import ModelLibrary
from slomo.models.neighbourhood import beside
from slomo.models.sharing import ports_full
from slomo.prediction.fixed_point import NAME
from slomo.prediction.predictor import Predictor
from slomo.prediction.result import SCHEMA_VERSION, label, mean_interval
from slomo.prediction.tenants import check_cores, tenant_of
from slomo.service.door.bodies import QuestionBody, Questions
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.workload_text import each_instance
from slomo.workflow.predict import predict

#: Largest number of cached encoded answers; the oldest are dropped first.
MOST_KEPT = 20_000
#: Largest number of cached equilibria per machine and coverage: about 20 MB.
MOST_MIXES = 100_000
#: Largest number of questions in one batch on the event loop.
MOST_TOGETHER = 128
#: Largest number of mixes of a machine solved in advance, and the number per step.
MOST_AHEAD, CHUNK = 20_000, 256
#: Number of steps solved in advance for a machine with more mixes: by then loops are compiled (`equilibrium`).
WARMING = 4
DEFAULT_COVERAGE = 0.9
VERDICTS = tuple(map(str, BEST_FIRST))
_encode = msgspec.json.Encoder().encode
Key = tuple[str | None, float]


@dataclass
class _Waiting:
    """A question, and the future that its caller awaits."""

    question: QuestionBody
    raw: bytes
    answer: "asyncio.Future[bytes]"


class ServiceAnswers:
    """Answers of one library's models to the service's questions.

    `fingerprint`: names the library in every answer.
    """

    def __init__(self, library: ModelLibrary, fingerprint: str) -> None:
        self.library, self.fingerprint = library, fingerprint
        self._machines: dict[str | None, _PlainMachine] = {}
        self._kept: dict[bytes, bytes] = {}
        self._by_library: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._waiting: list[_Waiting] = []
        self.batches = 0
        self.question_count = 0

    def kept(self, raw: bytes) -> bytes | None:
        """Return the cached answer to an equal question."""
        return self._kept.get(raw)

    def is_plain(self, question: QuestionBody) -> bool:
        """Return whether a question can join a batch."""
        if question.method == "composed" or question.offered_mpps is not None or question.explain:
            return False
        if question.shares_core_with or question.port_gbps is not None or question.setting is not None:
            return False
        return question.model == DEFAULT_MODEL and self._machine(question.machine).knows(
            (question.target, *question.competitors)
        )

    async def ask(self, question: QuestionBody, raw: bytes) -> bytes:
        """Answer a plain question, in one batch with all waiting ones."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(question, raw, loop.create_future())
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            loop.call_soon(self._gather, 1)
        return await waiting.answer

    def columns(self, questions: Questions) -> dict[str, Any]:
        """Predict many mixes as columns; InvalidValueError and UnknownNameError as in `Predictor.predict_batch`."""
        if len(questions.targets) != len(questions.mixes):
            raise InvalidValueError(
                f"{len(questions.targets)} targets for {len(questions.mixes)} mixes, needed one per mix"
            )
        questions = msgspec.structs.replace(questions, mixes=[each_instance(mix) for mix in questions.mixes])
        self.batches, self.question_count = self.batches + 1, self.question_count + len(questions.targets)
        machine = self._machine(questions.machine)
        named = {*questions.targets, *chain.from_iterable(questions.mixes)}
        if questions.model != DEFAULT_MODEL or not machine.knows(named):
            return self._columns_of_library(questions)
        solved = machine.solve(questions.targets, questions.mixes, questions.coverage)
        joint, reasons = solved.joint, machine.reasons(solved, questions.coverage)
        columns: dict[str, Any] = {
            "machine": machine.name,
            "model": NAME,
            "coverage": questions.coverage,
            "solo_mpps": solved.solo_mpps.tolist(),
            "throughput_mpps": joint.throughput_mpps[:, 0].tolist(),
            "low_mpps": joint.low_mpps[:, 0].tolist(),
            "high_mpps": joint.high_mpps[:, 0].tolist(),
            "verdict": np.array(VERDICTS, dtype=object)[solved.codes].tolist(),
            "reasons": [reasons.get(row, []) for row in range(len(questions.targets))],
            "fingerprint": self.fingerprint,
        }
        others = np.flatnonzero(solved.of_library).tolist()
        if others:  # the library answers those alone
            self._ask_library(questions, others, columns)
        return columns

    def _ask_library(self, questions: Questions, rows: list[int], columns: dict[str, Any]) -> None:
        """Fill in rows that have no equilibrium or share a full port; the library answers each distinct row once."""
        names = ("throughput_mpps", "low_mpps", "high_mpps", "verdict", "reasons")
        keys = [
            (questions.machine, questions.coverage, questions.targets[row], *sorted(questions.mixes[row]))
            for row in rows
        ]
        answered = {key: self._by_library[key] for key in keys if key in self._by_library}
        missing = [key for key in dict.fromkeys(keys) if key not in answered]
        if missing:
            part = msgspec.structs.replace(
                questions, targets=[key[2] for key in missing], mixes=[list(key[3:]) for key in missing]
            )
            told = self._columns_of_library(part)
            answered.update(zip(missing, zip(*(told[name] for name in names), strict=True), strict=True))
            if len(self._by_library) + len(missing) > MOST_KEPT:
                self._by_library.clear()
            self._by_library.update((key, answered[key]) for key in missing)
        for row, key in zip(rows, keys, strict=True):
            for name, value in zip(names, answered[key], strict=True):
                columns[name][row] = value

    def _columns_of_library(self, questions: Questions) -> dict[str, Any]:
        """Answer with the library's batch function."""
        predictor = Predictor(self.library, questions.machine, questions.model)
        batch = predictor.predict_batch(questions.targets, questions.mixes, questions.coverage)
        numbers = ("solo_mpps", "throughput_mpps", "low_mpps", "high_mpps")
        return {
            **{name: getattr(batch, name) for name in ("machine", "model", "coverage")},
            **{name: getattr(batch, name).tolist() for name in numbers},
            "verdict": batch.verdict.tolist(),
            "reasons": list(batch.reasons),
            "fingerprint": self.fingerprint,
        }

    def ahead(self) -> Iterator[Callable[[], float]]:
        """Yield steps that predict mixes of each machine in advance; each step returns the time it took [s].

        If all mixes are too many, enough small ones are solved that models are built and loops compiled before the
        first placement. One single question follows for each machine, which compiles what only those use.
        """
        for name in self.library.machines:
            machine = self._machine(name)
            are_few = math.comb(len(machine.models) + machine.places, machine.places) <= MOST_AHEAD
            for chunk in islice(machine.all_mixes(CHUNK), None if are_few else WARMING):
                yield functools.partial(machine.learn, chunk)
            yield functools.partial(_ask_once, self.library, name)

    def _machine(self, name: str | None) -> "_PlainMachine":
        if name is None and len(self.library.machines) == 1:
            name = self.library.machines[0]
        if name not in self._machines:
            if name is not None and name not in self.library.machines:
                return _PlainMachine(self.library, name)  # without models; not cached, as callers choose the name
            self._machines[name] = _PlainMachine(self.library, name)
        return self._machines[name]

    def _gather(self, before: int) -> None:
        """Answer all waiting questions once no more arrive within a turn of the event loop, or enough are waiting."""
        if before < len(self._waiting) < MOST_TOGETHER:
            asyncio.get_running_loop().call_soon(self._gather, len(self._waiting))
        else:
            self._flush()

    def _flush(self) -> None:
        batch, self._waiting = self._waiting[:MOST_TOGETHER], self._waiting[MOST_TOGETHER:]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        groups: dict[Key, list[_Waiting]] = {}
        for item in batch:
            if not item.answer.done():
                groups.setdefault((item.question.machine, item.question.coverage), []).append(item)
        for key, items in groups.items():
            answers = self._together(key, [item.question for item in items])
            for item, answer in zip(items, answers, strict=True):
                if isinstance(answer, BaseException):
                    item.answer.set_exception(answer)
                else:
                    self._keep(item.raw, answer)
                    item.answer.set_result(answer)

    def _keep(self, raw: bytes, answer: bytes) -> None:
        if len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[raw] = answer

    def _together(self, key: Key, questions: Sequence[QuestionBody]) -> list[bytes | Exception]:
        """Answer questions about one machine and coverage together; one that fails does not affect the others."""
        try:
            machine = self._machine(key[0])
            solved = machine.solve([q.target for q in questions], [q.competitors for q in questions], key[1])
        except SlomoError as error:
            if len(questions) == 1:
                return [error]
            return [self._together(key, [question])[0] for question in questions]
        except Exception as fault:  # an internal error is reported to all callers of this batch, and to no others
            return [fault] * len(questions)
        self.batches, self.question_count = self.batches + 1, self.question_count + len(questions)
        reasons = machine.reasons(solved, key[1])
        return [
            self._answer(machine, solved, row, question, reasons.get(row, [])) for row, question in enumerate(questions)
        ]

    def _answer(
        self, machine: "_PlainMachine", solved: "_Solved", row: int, question: QuestionBody, reasons: list[str]
    ) -> bytes | Exception:
        strictly = question.strict and solved.codes[row] >= 2
        if strictly or solved.of_library[row]:
            try:
                return _encode({**self.of_library(question), "fingerprint": self.fingerprint})
            except SlomoError as error:
                return error
        return _encode({**machine.document(solved, row, question.coverage, reasons), "fingerprint": self.fingerprint})

    def of_library(self, question: QuestionBody) -> dict[str, Any]:
        """Answer a question with all options of the library: loads, explanations, traffic that was not profiled.

        Raises the library's SlomoError.
        """
        prediction = predict(
            question.target,
            question.competitors,
            self.library,
            machine=question.machine,
            strict=question.strict,
            offered_mpps=question.offered_mpps,
            shares_core_with=question.shares_core_with,
            port_gbps=question.port_gbps,
            setting=None if question.setting is None else question.setting.asked,
            window_s=question.window_s,
            method=question.method,
            model=question.model,
            coverage=question.coverage,
            explain=question.explain,
        )
        document = prediction.to_dict()
        if not question.explain:
            document.update(composition=None)
        return document


@dataclass(frozen=True)
class _Solved:
    """Solved mixes, each with its target first."""

    members: NDArray[np.int64]
    joint: Joint
    #: Verdict per mix, 0, 1 or 2, from the profile of its target.
    codes: NDArray[np.int8]
    solo_mpps: NDArray[np.float64]
    #: Mixes without an equilibrium or with full shared ports, which the library answers.
    of_library: NDArray[np.bool_]


def _ask_once(library: ModelLibrary, machine: str) -> float:
    """Answer one question by either method; return the time taken [s]."""
    begun = time.perf_counter()
    for method in ("equilibrium", "composed"):
        predictor = Predictor(library, machine, method=method)
        with suppress(SlomoError):  # some functions answer to one method alone
            predictor.predict(predictor.workloads[0], predictor.workloads[:1], explain=False)
    return time.perf_counter() - begun


class _PlainMachine:
    """The network functions of one machine whose models array code can solve; each has a number."""

    def __init__(self, library: ModelLibrary, name: str | None) -> None:
        self.name = name or (library.machines[0] if len(library.machines) == 1 else "")
        models = [library[key] for key in library if key[0] == self.name]
        self.models = tuple(model for model in models if model.response is not None and model.accelerator is None)
        self._library = library
        self._at = {id(model): number for number, model in enumerate(self.models)}
        self._numbers: dict[str, int] = {}
        self._memos: dict[float, JointMemo] = {}
        capacities = self.models[0].capacities if self.models else None
        self.places = capacities.cores if capacities is not None else 16
        self._solo = np.array([model.solo_mpps for model in self.models] or [np.nan])
        self._labels = [label(model.workload) for model in self.models]
        self._spelled = [model.workload.to_dict() for model in self.models]

    def knows(self, names: "set[str] | tuple[str, ...]") -> bool:
        """Whether every name is one of the functions numbered here."""
        return bool(self.models) and all(self._number(name) >= 0 for name in names)

    def solve(self, targets: Sequence[str], mixes: Sequence[Sequence[str]], coverage: float) -> _Solved:
        """Solve mixes of names numbered here. Raises InvalidValueError for a mix with more tenants than cores."""
        sizes = np.fromiter(map(len, mixes), dtype=np.int64, count=len(mixes))
        widest = int(sizes.max(initial=0))
        if widest + 1 > self.places:
            row = int(sizes.argmax())
            check_cores(self.models[self._number(targets[row])], widest + 1)
        members = np.full((len(mixes), max(self.places, widest + 1)), -1, dtype=np.int64)
        numbers = self._numbers
        members[:, 0] = np.fromiter(map(numbers.__getitem__, targets), dtype=np.int64, count=len(targets))
        flat = np.fromiter(map(numbers.__getitem__, chain.from_iterable(mixes)), dtype=np.int64, count=int(sizes.sum()))
        members[:, 1:][np.arange(members.shape[1] - 1) < sizes[:, np.newaxis]] = flat
        joint = self._memo(coverage).solve(members)
        codes = codes_of_first(self.models, members, joint, coverage)
        of_library = ~joint.converged | ports_full(self.models, members)
        return _Solved(members, joint, codes, self._solo[members[:, 0]], of_library)

    def all_mixes(self, chunk: int) -> Iterator[list[tuple[int, ...]]]:
        """Yield lists of all mixes of the numbered functions, small mixes first."""
        whole = (mix for size in range(1, self.places + 1)
                 for mix in combinations_with_replacement(range(len(self.models)), size))  # fmt: skip
        while mixes := list(islice(whole, chunk)):
            yield mixes

    def learn(self, mixes: Sequence[tuple[int, ...]], coverage: float = DEFAULT_COVERAGE) -> float:
        """Solve mixes in advance and cache the results; return the time taken [s]."""
        begun = time.perf_counter()
        members = np.full((len(mixes), self.places), -1, dtype=np.int64)
        for row, mix in enumerate(mixes):
            members[row, : len(mix)] = mix
        self._memo(coverage).solve(members)
        return time.perf_counter() - begun

    def document(self, solved: _Solved, row: int, coverage: float, reasons: list[str]) -> dict[str, Any]:
        """Return one row's prediction in the library's format."""
        members = [number for number in solved.members[row].tolist() if number >= 0]
        joint, code, solo = solved.joint, int(solved.codes[row]), float(solved.solo_mpps[row])
        mpps = float(joint.throughput_mpps[row, 0])
        interval, noise = (float(joint.low_mpps[row, 0]), float(joint.high_mpps[row, 0])), self.models[members[0]].noise
        return {
            "schema_version": SCHEMA_VERSION,
            "target": self._labels[members[0]],
            "competitors": [self._labels[number] for number in members[1:]],
            "machine": self.name,
            "model": NAME,
            "solo_mpps": solo,
            "throughput_mpps": mpps,
            "slowdown": 1.0 - mpps / solo if solo > 0.0 else None,
            "interval": list(interval),
            "mean_interval": list(mean_interval(noise, mpps, solo, interval, coverage)),
            "noise": None if noise is None else noise.to_dict(),
            "coverage": coverage,
            "verdict": VERDICTS[code],
            "reasons": reasons,
            "evidence": None,
            "carrier": None,
            "explanation": None,
            "composition": None,
            "latency": None,
            "unit": self.models[members[0]].throughput_unit,
            "workloads": [self._spelled[number] for number in members],
        }

    def _number(self, name: str) -> int:
        kept_number = self._numbers.get(name)
        if kept_number is not None:
            return kept_number
        number = -1
        if not any(sign in name for sign in "@(:"):
            try:
                tenant = tenant_of(self._library, name, self.name)
                number = -1 if tenant.adapted or tenant.offered_mpps else self._at.get(id(tenant.model), -1)
            except SlomoError:
                return -1  # not kept: callers choose names
        if number >= 0:
            self._numbers[name] = number
        return number

    def _memo(self, coverage: float) -> JointMemo:
        if coverage not in self._memos:
            if len(self._memos) >= 4:
                self._memos.pop(next(iter(self._memos)))
            self._memos[coverage] = JointMemo(self.models, coverage=coverage, most=MOST_MIXES)
        return self._memos[coverage]

    def reasons(self, solved: _Solved, coverage: float) -> dict[int, list[str]]:
        """Return why answers are not supported by measurements, by row; supported rows are left out."""
        rows = np.flatnonzero(solved.codes)
        if not len(rows):
            return {}
        joint, members = solved.joint, solved.members[rows]
        point = FixedPoints(joint.pressure[rows], joint.load[rows], joint.waiting[rows])
        moved = moved_beside(moved_by_each(self.models, members, point), 0).tolist()
        channel, kinds = channel_load(self.models, members, point).tolist(), beside(members[:, 1:]).tolist()
        possible = joint.throughput_mpps[rows, 0].tolist()
        told: dict[int, list[str]] = {}
        for at, (row, number) in enumerate(zip(rows.tolist(), members[:, 0].tolist(), strict=True)):
            model = self.models[number]
            assert model.response is not None
            error = usual_error(model, possible[at], kinds[at])
            why = judged(model.response, joint.pressure[row, 0], moved[at], channel[at], error)[1]
            doubt = doubted(model, coverage)
            told[row] = [*(() if doubt is None else (doubt,)), *why]
        return told
