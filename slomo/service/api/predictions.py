"""`/v1/predict` and `/v1/whatif`: predict one mix, many mixes, or all tenants of a socket."""

from collections import Counter
from typing import Any

import msgspec

from slomo.errors import InvalidValueError
from slomo.prediction.question import solve_server
from slomo.prediction.result import label
from slomo.prediction.server_result import ServerPrediction, TenantPrediction
from slomo.service.application import Service
from slomo.service.door.bodies import PredictionAnswer, PredictionColumns, QuestionBody, Questions, WhatIf
from slomo.service.door.operation import Answer, Call, Operation
from slomo.service.door.problems import Problem
from slomo.service.knowledge.outcomes import corrected, corrected_columns
from slomo.service.knowledge.questions import ServiceAnswers
from slomo.vocabulary.server_setting import ServerSetting
from slomo.workflow.names import named


class _Judged(msgspec.Struct):
    verdict: str


_verdict_in = msgspec.json.Decoder(_Judged).decode


async def predict(service: Service, call: Call) -> Answer:
    """Predict how much throughput a network function loses beside others."""
    answers, question = service.model_store.answers, call.body
    answer = answers.kept.get(call.raw)  # cached answers are not corrected by outcomes
    if answer is None and answers.is_plain(question):  # in a batch; all others in a thread
        answer = await answers.ask(question, call.raw)
    if answer is not None:
        service.metrics.predictions.add((_verdict_in(answer).verdict,))
        return Answer(
            _corrected(service, msgspec.json.decode(answer), question.target) if _corrects(service) else answer
        )
    document = {**await service.aside(lambda: answers.of_library(question)), "fingerprint": answers.fingerprint}
    service.metrics.predictions.add((document["verdict"],))
    return Answer(_corrected(service, document, question.target))


def _repeated(service: Service, raw: bytes) -> bytes | None:
    answer = None if _corrects(service) else service.model_store.answers.kept.get(raw)
    if answer is not None:
        service.metrics.predictions.add((_verdict_in(answer).verdict,))
    return answer


def _corrects(service: Service) -> bool:
    return service.settings.correct and not service.outcomes.is_neutral


def _corrected(service: Service, document: dict[str, Any], target: str) -> dict[str, Any]:
    if not _corrects(service):
        return document
    return corrected(document, service.outcomes.factor(document["machine"], target))


async def predict_many(service: Service, call: Call) -> Answer:
    """Predict many mixes in one request; the answer has one column per field."""
    questions: Questions = call.body
    if len(questions.targets) > service.settings.batch_limit:
        raise Problem(
            413, f"{len(questions.targets)} questions, at most {service.settings.batch_limit} are answered at once"
        )
    answers = service.model_store.answers

    def run() -> tuple[bytes, Counter[str]]:
        columns = answers.columns(questions)
        if _corrects(service):
            factors = {name: service.outcomes.factor(columns["machine"], name) for name in set(questions.targets)}
            columns = corrected_columns(columns, [factors[name] for name in questions.targets])
        pairs = zip(columns["throughput_mpps"], columns["solo_mpps"], strict=True)
        columns["slowdown"] = [None if mpps is None else 1.0 - mpps / solo for mpps, solo in pairs]
        return msgspec.json.encode(columns), Counter(columns["verdict"])

    answer, verdicts = await service.aside(run)
    for verdict, count in verdicts.items():
        service.metrics.predictions.add((verdict,), count)
    return Answer(answer)


async def what_if(service: Service, call: Call) -> Answer:
    """Predict how much throughput every function on a socket loses, and how much of it each neighbour causes."""
    question: WhatIf = call.body
    answers = service.model_store.answers
    document = await service.aside(lambda: together(answers, question))
    for tenant in document["tenants"]:
        service.metrics.predictions.add((tenant["verdict"],))
    return Answer(document)


def together(answers: ServiceAnswers, question: WhatIf) -> dict[str, Any]:
    """Predict every function beside all others and with each neighbour left out, to find the neighbours' effects."""
    names = named(question.tenants)
    if len(names) > MOST_TENANTS:
        raise InvalidValueError(f"{len(names)} tenants on one socket, at most {MOST_TENANTS} can be asked about")
    setting = ServerSetting() if question.setting is None else question.setting.asked.checked(len(names))

    def server(left_out: int | None = None) -> ServerPrediction:
        """Return the server's functions without one of them."""
        there = [place for place in range(len(names)) if place != left_out]
        chosen = [names[place] for place in there]
        return solve_server(answers.library, chosen, question.machine, setting=setting.only(there), **question.how)

    whole = server()
    costs = [[0.0] * len(names) for _ in names]
    for left_out in range(len(names)) if len(names) > 1 else ():
        served = list(server(left_out).throughput_mpps)
        served.insert(left_out, 0.0)
        pairs = zip(served, whole.throughput_mpps, strict=True)
        costs[left_out] = [max(without - beside, 0.0) for without, beside in pairs]
        costs[left_out][left_out] = 0.0
    return {
        "machine": whole.machine,
        "tenants": [_tenant(item) for item in whole.tenants],
        "costs_mpps": costs,
        "fingerprint": answers.fingerprint,
    }


#: Largest number of tenants in one question about a socket, since each needs a prediction of its own.
MOST_TENANTS = 64


def _tenant(prediction: TenantPrediction) -> dict[str, Any]:
    return {
        "target": label(prediction.workload),
        "solo_mpps": prediction.solo_mpps,
        "throughput_mpps": prediction.throughput_mpps,
        "slowdown": prediction.slowdown,
        "interval": list(prediction.interval),
        "verdict": str(prediction.verdict),
        "reasons": list(prediction.reasons),
    }


OPERATIONS = (
    Operation("POST", "/v1/predict", predict, body=QuestionBody, answers=PredictionAnswer, tag="predict",
              repeated=_repeated),
    Operation("POST", "/v1/predict/batch", predict_many, body=Questions, answers=PredictionColumns, tag="predict"),
    Operation("POST", "/v1/whatif", what_if, body=WhatIf, tag="predict"),
)  # fmt: skip
