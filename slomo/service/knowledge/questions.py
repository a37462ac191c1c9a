"""Answer questions by one library's models: waiting questions are predicted in one batch, and answers are cached.

A cluster has few distinct mixes, and a mix in a batch costs a tenth of a mix that is predicted alone. Questions that
arrive while the service is busy are therefore answered together, without a timer (as in continuous batching of
language-model servers), and solved mixes are cached (`slomo.prediction.batch`). Questions with loads, explanations,
unprofiled traffic, accelerators, full ports or another model are answered one by one, by `slomo.predict`.
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

from slomo.errors import SlomoError
from slomo.models.library import ModelLibrary
from slomo.prediction.batch import predict_members
from slomo.prediction.members import Members
from slomo.prediction.options import PredictionOptions
from slomo.prediction.predictor import Predictor
from slomo.prediction.question import answer
from slomo.prediction.result import Prediction, PredictionBatch
from slomo.prediction.tenants import TenantModel, server_with, tenant_of
from slomo.service.door.bodies import AnswerBody, QuestionBody, Questions
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.workload_text import each_instance
from slomo.workflow.predict import predict, predict_batch

#: Largest number of cached encoded answers; the oldest answers are dropped first.
MOST_KEPT = 20_000
#: Largest number of questions in one batch on the event loop.
MOST_TOGETHER = 128
#: Largest number of a machine's mixes that are solved in advance, and number of mixes per step.
MOST_AHEAD, CHUNK = 20_000, 256
#: Number of steps in advance for a machine with more mixes; after them, the loops of `equilibrium` are compiled.
WARMING = 4
DEFAULT_COVERAGE = 0.9
_encode = msgspec.json.Encoder().encode
Key = tuple[str | None, float]


@dataclass
class _Waiting:
    """A waiting question, and the future that its caller awaits."""

    question: QuestionBody
    raw: bytes
    answer: "asyncio.Future[bytes]"


class ServiceAnswers:
    """Answers questions by the models of one library.

    `fingerprint`: identifier of the library in every answer.
    """

    def __init__(self, library: ModelLibrary, fingerprint: str) -> None:
        self.library, self.fingerprint = library, fingerprint
        self._machines: dict[str | None, _Machine] = {}
        self._kept: dict[bytes, bytes] = {}
        self._waiting: list[_Waiting] = []
        self.batches = 0
        self.question_count = 0

    def kept(self, raw: bytes) -> bytes | None:
        """Return the cached answer to an equal question; None if there is none."""
        return self._kept.get(raw)

    def is_plain(self, question: QuestionBody) -> bool:
        """Return whether a question has no special options, so that it can join a batch."""
        if not _by_default(question) or question.offered_mpps is not None or question.explain:
            return False
        if question.shares_core_with or question.port_gbps is not None or question.setting is not None:
            return False
        return self._machine(question.machine).knows((question.target, *question.competitors))

    async def ask(self, question: QuestionBody, raw: bytes) -> bytes:
        """Answer a question without special options, in one batch with all waiting questions."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(question, raw, loop.create_future())
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            loop.call_soon(self._gather, 1)
        return await waiting.answer

    def columns(self, questions: Questions) -> dict[str, Any]:
        """Predict many mixes; return one column per field."""
        targets, mixes = questions.targets, [[*map(str, each_instance(mix))] for mix in questions.mixes]
        self.batches, self.question_count = self.batches + 1, self.question_count + len(targets)
        machine = self._machine(questions.machine)
        knows = _by_default(questions) and machine.knows({*targets, *chain.from_iterable(mixes)})
        if knows and len(targets) == len(mixes):
            batch = machine.predicted(targets, mixes, questions.coverage)
        else:
            batch = predict_batch(targets, mixes, self.library, machine=questions.machine, **questions.how)
        numbers = ("solo_mpps", "throughput_mpps", "low_mpps", "high_mpps")
        return {
            **{name: getattr(batch, name) for name in ("machine", "model", "coverage")},
            **{name: getattr(batch, name).tolist() for name in numbers},
            "unit": batch.unit.tolist(),
            "verdict": batch.verdict.tolist(),
            "reasons": list(batch.reasons),
            "fingerprint": self.fingerprint,
        }

    def ahead(self) -> Iterator[Callable[[], float]]:
        """Yield steps, each of which predicts some mixes in advance and returns the time it took [s].

        If a machine has too many mixes, only small mixes are solved, enough to build models and compile loops before
        the first placement. One single question per machine follows, to compile the code that only single questions
        use.
        """
        for name in self.library.machines:
            machine = self._machine(name)
            are_few = math.comb(len(machine.tenants) + machine.places, machine.places) <= MOST_AHEAD
            for chunk in islice(machine.all_mixes(CHUNK), None if are_few else WARMING):
                yield functools.partial(machine.learn, chunk)
            yield functools.partial(_ask_once, self.library, name)

    def _machine(self, name: str | None) -> "_Machine":
        name = self.library.name_of(name)
        if name not in self._machines:
            if name is not None and name not in self.library.machines:
                return _Machine(self.library, name)  # without models; not cached, since callers choose the name
            self._machines[name] = _Machine(self.library, name)
        return self._machines[name]

    def _gather(self, before: int) -> None:
        """Answer all waiting questions once no more arrive or enough are waiting."""
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
            for item, told in zip(items, answers, strict=True):
                if isinstance(told, BaseException):
                    item.answer.set_exception(told)
                else:
                    self._keep(item.raw, told)
                    item.answer.set_result(told)

    def _keep(self, raw: bytes, answer: bytes) -> None:
        if len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[raw] = answer

    def _together(self, key: Key, questions: Sequence[QuestionBody]) -> list[bytes | Exception]:
        """Answer questions about one machine in one batch; an invalid one does not affect the others.

        A single question is answered without arrays, since these are faster only for two questions or more.
        """
        machine, predictions = self._machine(key[0]), list[Prediction | None]([None])
        try:
            if len(questions) > 1:
                batch = machine.predicted([q.target for q in questions], [q.competitors for q in questions], key[1])
                predictions = machine.judged(batch)
        except SlomoError:
            return [self._together(key, [question])[0] for question in questions]
        except Exception as fault:  # an internal error is reported to all callers of this batch, and to no others
            return [fault] * len(questions)
        self.batches, self.question_count = self.batches + 1, self.question_count + len(questions)
        answers: list[bytes | Exception] = []
        for question, prediction in zip(questions, predictions, strict=True):
            if prediction is None or (question.strict and prediction.verdict.is_refused):
                answers.append(self._alone(machine, question))
            else:
                answers.append(self._encoded(prediction.to_dict()))
        return answers

    def _alone(self, machine: "_Machine", question: QuestionBody) -> bytes | Exception:
        try:
            return self._encoded({**machine.one(question).to_dict(), "composition": None})
        except SlomoError as error:
            return error

    def _encoded(self, document: dict[str, Any]) -> bytes:
        return _encode({**document, "fingerprint": self.fingerprint})

    def of_library(self, question: QuestionBody) -> dict[str, Any]:
        """Answer a question with special options: loads, explanations, unprofiled traffic.

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
            explain=question.explain,
            **question.how,
        )
        document = prediction.to_dict()
        if not question.explain:
            document.update(composition=None)
        return document


def _by_default(question: AnswerBody) -> bool:
    """Return whether the equilibrium answers if all models support it, without options but the coverage."""
    is_composed = question.method == "composed" or question.compat is not None
    return question.model == DEFAULT_MODEL and not is_composed and question.window_s is None


def _ask_once(library: ModelLibrary, machine: str) -> float:
    """Answer one question by each method, to compile all code; return the time it took [s]."""
    begun = time.perf_counter()
    for method in ("equilibrium", "composed"):
        predictor = Predictor(library, machine, method=method)
        with suppress(SlomoError):  # some functions can be predicted by one method only
            predictor.predict(predictor.workloads[0], predictor.workloads[:1], explain=False)
    return time.perf_counter() - begun


class _Machine:
    """The network functions of one machine that can be predicted in batches; each has a number."""

    def __init__(self, library: ModelLibrary, name: str | None) -> None:
        self.name, self._library = name or "", library
        models = [library[key] for key in library if key[0] == name]
        plain = [model for model in models if model.response is not None and model.accelerator is None]
        self.tenants = tuple(TenantModel(model.workload, model) for model in plain)
        self._at = {id(model): number for number, model in enumerate(plain)}
        self._numbers: dict[str, int] = {}
        capacities = plain[0].capacities if plain else None
        self.places = capacities.cores if capacities is not None else 16

    def knows(self, names: "set[str] | tuple[str, ...]") -> bool:
        """Return whether all names are of functions that have a number."""
        return bool(self.tenants) and all(self._number(name) >= 0 for name in names)

    def _number(self, name: str) -> int:
        number = self._numbers.get(name, -1)
        if number < 0 and not any(sign in name for sign in "@(:"):
            with suppress(SlomoError):  # not cached, since callers choose names
                tenant = tenant_of(self._library, name, self.name)
                number = -1 if tenant.adapted or tenant.offered_mpps else self._at.get(id(tenant.model), -1)
            if number >= 0:
                self._numbers[name] = number
        return number

    def one(self, question: QuestionBody) -> Prediction:
        """Predict one mix of numbered functions, without arrays; errors as in `slomo.prediction.question.answer`."""
        tenants = tuple([self.tenants[self._numbers[name]] for name in (question.target, *question.competitors)])
        how = PredictionOptions(question.method, coverage=question.coverage, explain=False)
        return answer(server_with(tenants, self.name), how, strict=question.strict)

    def predicted(self, targets: Sequence[str], mixes: Sequence[Sequence[str]], coverage: float) -> PredictionBatch:
        """Predict mixes of numbered functions. Raises InvalidValueError for a mix with more tenants than cores."""
        numbers = [[self._numbers[name] for name in (target, *mix)] for target, mix in zip(targets, mixes, strict=True)]
        return self._predicted(numbers, coverage)

    def _predicted(self, mixes: Sequence[Sequence[int]], coverage: float) -> PredictionBatch:
        sizes = np.fromiter(map(len, mixes), dtype=np.int64, count=len(mixes))
        whole = np.full((len(mixes), max(self.places, int(sizes.max(initial=0)))), -1, dtype=np.int64)
        flat = np.fromiter(chain.from_iterable(mixes), dtype=np.int64, count=int(sizes.sum()))
        whole[np.arange(whole.shape[1]) < sizes[:, np.newaxis]] = flat
        members = Members(self.tenants, whole[:, 0], whole[:, 1:])
        how = PredictionOptions(coverage=coverage, explain=False)
        return predict_members(members, self.name, how, keep=True)

    def judged(self, batch: PredictionBatch) -> list[Prediction | None]:
        """Return the predictions of a batch with their verdicts; None for a mix that must be predicted alone."""
        columns = (batch.solo_mpps, batch.throughput_mpps, batch.low_mpps, batch.high_mpps)
        rates = zip(*(column.tolist() for column in columns), strict=True)
        rows = zip(batch.judged(), batch.target.tolist(), batch.competitors.tolist(), rates, strict=True)
        return [
            Prediction(
                batch.workloads[target],
                tuple([batch.workloads[number] for number in others if number >= 0]),
                batch.machine,
                batch.model,
                solo,
                mpps,
                (low, high),
                batch.coverage,
                *judgement,
                noise=self.tenants[target].model.noise,
                unit=self.tenants[target].model.throughput_unit,
            )
            if judgement is not None
            else None
            for judgement, target, others, (solo, mpps, low, high) in rows
        ]

    def all_mixes(self, chunk: int) -> Iterator[list[tuple[int, ...]]]:
        """Yield lists of all mixes of the numbered functions, small mixes first."""
        whole = (mix for size in range(1, self.places + 1)
                 for mix in combinations_with_replacement(range(len(self.tenants)), size))  # fmt: skip
        while mixes := list(islice(whole, chunk)):
            yield mixes

    def learn(self, mixes: Sequence[tuple[int, ...]]) -> float:
        """Predict mixes in advance and cache the results; return the time it took [s]."""
        begun = time.perf_counter()
        self._predicted(mixes, DEFAULT_COVERAGE)
        return time.perf_counter() - begun
