"""Answer questions by one library's models: waiting questions are predicted in one batch, and answers are cached.

A cluster has few distinct mixes, and a mix in a batch costs a tenth of a mix that is predicted alone. Questions that
arrive while the service is busy are therefore answered together, without a timer (as in continuous batching of
language-model servers), and solved mixes are cached (`slomo.prediction.batch`). Questions with loads, explanations,
unprofiled traffic, accelerators, full ports or another model are answered one by one, by `slomo.predict`.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec

from slomo.errors import SlomoError
from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.prediction.result import Prediction
from slomo.service.door.bodies import AnswerBody, QuestionBody, Questions
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.workload_text import each_instance
from slomo.workflow.predict import predict, predict_batch

#: Largest number of cached encoded answers; the oldest answers are dropped first.
MOST_KEPT = 20_000
#: Largest number of questions in one batch on the event loop.
MOST_TOGETHER = 128
_encode = msgspec.json.Encoder().encode
Key = tuple[str | None, float]


@dataclass
class _Waiting:
    """A waiting question, and the future that its caller awaits."""

    question: QuestionBody
    raw: bytes
    answer: "asyncio.Future[bytes]"


class ServiceAnswers:
    """Answers questions by the models of one library, whose `fingerprint` is in every answer."""

    def __init__(self, library: ModelLibrary, fingerprint: str) -> None:
        self.library, self.fingerprint = library, fingerprint
        self._predictors: dict[str | None, Predictor] = {}
        #: Cached answers by the bodies of their questions.
        self.kept: dict[bytes, bytes] = {}
        self._waiting: list[_Waiting] = []
        self.question_count = 0

    def is_plain(self, question: QuestionBody) -> bool:
        """Return whether a question has no special options, so that it can join a batch."""
        if not _by_default(question) or question.offered_mpps is not None or question.explain:
            return False
        if question.shares_core_with or question.port_gbps is not None or question.setting is not None:
            return False
        return self._predictor(question.machine).solves_in_arrays((question.target, *question.competitors))

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
        self.question_count += len(targets)
        predictor = self._predictor(questions.machine)
        if _by_default(questions) and predictor.solves_in_arrays({*targets, *chain.from_iterable(mixes)}):
            batch = predictor.predict_batch(targets, mixes, questions.coverage, keep=True)
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

    def ahead(self) -> Iterator[Callable[[], object]]:
        """Yield steps that solve likely mixes of all machines in advance, as in `Predictor.ahead`."""
        for name in self.library.machines:
            yield from self._predictor(name).ahead()

    def _predictor(self, name: str | None) -> Predictor:
        name = self.library.name_of(name)
        if name not in self._predictors:
            if name is not None and name not in self.library.machines:
                return Predictor(self.library, name)  # without models; not cached, since callers choose the name
            self._predictors[name] = Predictor(self.library, name)
        return self._predictors[name]

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
            for item, answer in zip(items, answers, strict=True):
                if isinstance(answer, BaseException):
                    item.answer.set_exception(answer)
                else:
                    if len(self.kept) >= MOST_KEPT:
                        del self.kept[next(iter(self.kept))]
                    self.kept[item.raw] = answer
                    item.answer.set_result(answer)

    def _together(self, key: Key, questions: Sequence[QuestionBody]) -> list[bytes | Exception]:
        """Answer questions about one machine in one batch, a single one without arrays; invalid ones alone fail."""
        predictor, predictions = self._predictor(key[0]), list[Prediction | None]([None])
        try:
            if len(questions) > 1:
                asked = [each.target for each in questions], [each.competitors for each in questions]
                predictions = predictor.predict_batch(*asked, key[1], keep=True).predictions()
        except SlomoError:
            return [self._together(key, [question])[0] for question in questions]
        except Exception as fault:  # an internal error is reported to all callers of this batch, and to no others
            return [fault] * len(questions)
        self.question_count += len(questions)
        answers: list[bytes | Exception] = []
        for question, prediction in zip(questions, predictions, strict=True):
            if prediction is None or (question.strict and prediction.verdict.is_refused):
                answers.append(self._alone(predictor, question))
            else:
                answers.append(self._encoded(prediction.to_dict()))
        return answers

    def _alone(self, predictor: Predictor, question: QuestionBody) -> bytes | Exception:
        asked = question.target, question.competitors, question.coverage
        try:
            prediction = predictor.predict(*asked, strict=question.strict, explain=False)
        except SlomoError as error:
            return error
        return self._encoded({**prediction.to_dict(), "composition": None})

    def _encoded(self, document: dict[str, Any]) -> bytes:
        return _encode({**document, "fingerprint": self.fingerprint})

    def of_library(self, question: QuestionBody) -> dict[str, Any]:
        """Answer a question with special options: loads, explanations, unprofiled traffic."""
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
