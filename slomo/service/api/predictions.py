"""`/v1/predict`, `/v1/whatif`: one mix, many mixes, everybody on a socket."""

from typing import TYPE_CHECKING, Any

import msgspec

from slomo.errors import InvalidValueError
from slomo.prediction.predictor import Predictor
from slomo.prediction.result import label
from slomo.service.door.bodies import PredictionAnswer, PredictionColumns, QuestionBody, Questions, WhatIf
from slomo.service.door.operation import Answer, Call, Operation
from slomo.service.door.problems import Problem
from slomo.service.knowledge.outcomes import corrected, corrected_columns
from slomo.workflow.names import named

if TYPE_CHECKING:
    from slomo.prediction.result import Prediction
    from slomo.service.application import Service
    from slomo.service.knowledge.questions import ServiceAnswers


async def predict(service: "Service", call: Call) -> Answer:
    """Answer one question; plain ones join the batch of the moment, others are asked aside."""
    answers, question = service.shelf.answers, call.body
    kept = answers.kept(call.raw)  # where answers are corrected, what is kept is not what is answered
    if kept is None and answers.is_plain(question):
        kept = await answers.ask(question, call.raw)
    if kept is not None:
        return Answer(_corrected(service, msgspec.json.decode(kept), question.target) if _corrects(service) else kept)
    document = {**await service.aside(lambda: answers.of_library(question)), "fingerprint": answers.fingerprint}
    return Answer(_corrected(service, document, question.target))


def _repeated(service: "Service", raw: bytes) -> bytes | None:
    return None if _corrects(service) else service.shelf.answers.kept(raw)


def _corrects(service: "Service") -> bool:
    return service.settings.correct and not service.outcomes.is_neutral


def _corrected(service: "Service", document: dict[str, Any], target: str) -> dict[str, Any]:
    if not _corrects(service):
        return document
    return corrected(document, service.outcomes.factor(document["machine"], target))


async def predict_many(service: "Service", call: Call) -> Answer:
    """Answer many questions as columns, in a thread."""
    questions: Questions = call.body
    if len(questions.targets) > service.settings.batch_limit:
        raise Problem(
            413, f"{len(questions.targets)} questions, at most {service.settings.batch_limit} are answered at once"
        )
    answers = service.shelf.answers

    def run() -> bytes:
        columns = answers.columns(questions)
        if _corrects(service):
            factors = {name: service.outcomes.factor(columns["machine"], name) for name in set(questions.targets)}
            columns = corrected_columns(columns, [factors[name] for name in questions.targets])
        return msgspec.json.encode(columns)

    return Answer(await service.aside(run))


async def what_if(service: "Service", call: Call) -> Answer:
    """Say what everybody on a socket loses, and who costs whom how much."""
    question: WhatIf = call.body
    answers = service.shelf.answers
    return Answer(await service.aside(lambda: together(answers, question.tenants, question.machine, question.coverage)))


def together(
    answers: "ServiceAnswers", tenants: list[str], machine: str | None, coverage: float = 0.9
) -> dict[str, Any]:
    """Predict every tenant beside the others, and beside the others less one: what that one costs it.

    Raises
    ------
    InvalidValueError
        For more tenants than the socket has cores.
    """
    names = [item for text in tenants for item in named(text)]
    if len(names) > MOST_TENANTS:
        raise InvalidValueError(f"{len(names)} tenants on one socket, at most {MOST_TENANTS} can be asked about")
    predictor = Predictor(answers.library, machine)
    alone = list(range(len(names)))
    whole = [predictor.predict(names[i], [names[j] for j in alone if j != i], coverage, explain=False) for i in alone]
    pairs = [(i, j) for i in alone for j in alone if i != j]
    without_one = predictor.predict_batch(
        [names[i] for i, _ in pairs],
        [[names[k] for k in alone if k not in (i, j)] for i, j in pairs],
        coverage,
    )
    costs = [[0.0] * len(alone) for _ in alone]
    for (i, j), mpps in zip(pairs, without_one.throughput_mpps.tolist(), strict=True):
        costs[j][i] = max(mpps - whole[i].throughput_mpps, 0.0)
    return {
        "machine": whole[0].machine,
        "tenants": [_tenant(item) for item in whole],
        "costs_mpps": costs,
        "fingerprint": answers.fingerprint,
    }


#: Tenants of one question about a socket, at most: the question is answered tenant by tenant.
MOST_TENANTS = 64


def _tenant(prediction: "Prediction") -> dict[str, Any]:
    return {
        "target": label(prediction.target),
        "solo_mpps": prediction.solo_mpps,
        "throughput_mpps": prediction.throughput_mpps,
        "slowdown": prediction.slowdown,
        "interval": list(prediction.interval),
        "verdict": str(prediction.verdict),
        "reasons": list(prediction.reasons),
    }


OPERATIONS = (
    Operation("POST", "/v1/predict", predict, "Predict what a network function loses beside others.", body=QuestionBody,
              answers=PredictionAnswer, tag="predict", repeated=_repeated),
    Operation("POST", "/v1/predict/batch", predict_many, "Predict many mixes in one request, answered as columns.",
              body=Questions, answers=PredictionColumns, tag="predict"),
    Operation("POST", "/v1/whatif", what_if, "Say what everybody on a socket loses, and who costs whom how much.",
              body=WhatIf, tag="predict"),
)  # fmt: skip
