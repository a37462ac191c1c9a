"""One server, asked about through every door with everything that can be set on it: the same bits (law 11)."""

import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import redirect_stdout
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slomo
from slomo.cli.main import load_command, main
from slomo.control.numa import NumaController, NumaTenant
from slomo.control.pools.foresight import PoolForesight
from slomo.control.pools.request import PoolRequest
from slomo.control.situation import foresee_many
from slomo.enforce.plan import EnforcementPlan, MemoryBandwidth, TenantSetting
from slomo.errors import InvalidValueError, UnsupportedPredictionError
from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import PartitionProfile, library_of
from slomo.placement.chains.policies import Estimate
from slomo.placement.chains.predicted import node_rates
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.feasibility.mixes import Host
from slomo.placement.feasibility.oracle import behind_port
from slomo.prediction.options import PredictionOptions
from slomo.prediction.predictor import Predictor
from slomo.prediction.question import solve_server
from slomo.profiling.plans.basic import named_mixes_plan
from slomo.service.door.bodies import AnswerBody, QuestionBody, Questions, SettingBody, WhatIf
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.defaults import AnswerOptions
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.workload import Traffic, Workload
from slomo.workflow.acting.whatif import what_if
from tests.allocations import allocation

from .conftest import MACHINE, nf_model
from .test_question import respond

HERE = load_machine(MACHINE)
FULL = HERE.full_way_mask


@pytest.fixture(scope="module")
def library() -> ModelLibrary:
    """Three NFs that know ways and pressure, and one that knows pressure alone."""
    made = [
        respond(nf_model("lpm", 5.0, 20.0, 1500.0, 1.0)),
        respond(nf_model("nat", 2.7, 33.0, 2000.0, 2.0)),
        respond(nf_model("stats", 3.7, 38.0, 3000.0, 3.0)),
    ]
    known = {"lpm": (0.5, 300.0), "nat": (1.5, 500.0), "stats": (1.0, 900.0)}
    models = [
        replace(
            model,
            accelerator=None,
            capacities=HERE.capacities(),
            allocation=allocation(model.workload.key, MACHINE, model.solo_mpps, *known[model.workload.nf]),
        )
        for model in made
    ]
    return ModelLibrary([*models, replace(models[0], workload=Workload("firewall"), allocation=None)])


@pytest.fixture(scope="module")
def folder(library: ModelLibrary, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder in which the models are saved."""
    return str(library.save(tmp_path_factory.mktemp("models")))


@pytest.fixture(scope="module")
def service(folder: str) -> Any:
    """Return a client of a service that answers from the same models, as files."""
    pytest.importorskip("starlette", reason="pip install 'slomo[service]'")
    with warnings.catch_warnings():  # Starlette 1 would like another package than the client needs
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient

    from slomo.service.api.routes import OPERATIONS
    from slomo.service.application import Service, make_app
    from slomo.service.settings import ServiceSettings

    with TestClient(make_app(Service(ServiceSettings(Path(folder))), OPERATIONS)) as client:
        yield client


@dataclass(frozen=True)
class Server:
    """Who runs, and what is set."""

    mix: tuple[Workload, ...]
    setting: ServerSetting

    @property
    def keys(self) -> list[str]:
        """Each tenant's name, its load included."""
        return [workload.key for workload in self.mix]

    def reordered(self, order: Sequence[int]) -> "Server":
        """Return the same server with its tenants named in another order."""
        return Server(tuple(self.mix[i] for i in order), self.setting.only(order))

    def first(self, place: int) -> "Server":
        """Return the same server with another tenant named first."""
        return self.reordered([place, *(i for i in range(len(self.mix)) if i != place)])

    @property
    def loaded(self) -> "Server":
        """Return the server with a load for each tenant: more than it can serve, where it had none."""
        return replace(self, mix=tuple(each.offered(each.traffic.offered_mpps or 20.0) for each in self.mix))

    def known_by(self, axes: Set[str]) -> "Server":
        """Return the server with only these axes set; the others are as usual."""
        mix = self.mix if "loads" in axes else tuple(workload.saturated for workload in self.mix)
        left_out = {each.name: None for each in fields(ServerSetting) if each.name not in axes}
        return Server(mix, replace(self.setting, **left_out))  # type: ignore[arg-type]


@st.composite
def servers(draw: st.DrawFn) -> Server:
    """Return a server of two to five NFs, each lever used or not."""
    loads = st.none() | st.sampled_from([0.3, 1.1, 20.0])
    one = st.tuples(st.sampled_from(["lpm", "nat", "stats"]), loads)
    mix = tuple(
        Workload(nf, traffic=Traffic(offered_mpps=load)) for nf, load in draw(st.lists(one, min_size=2, max_size=5))
    )
    count = len(mix)

    def lever(values: st.SearchStrategy[Any]) -> Any:
        return draw(st.none() | st.lists(values, min_size=count, max_size=count).map(tuple))

    masks = st.sampled_from([FULL, FULL, 0x3, 0x7, FULL & ~0x7, 0xF0, 0x3C])
    setting = ServerSetting(
        ways=lever(masks),
        bandwidth_percent=lever(st.sampled_from([100.0, 100.0, 50.0, 10.0])),
        cores=lever(st.sampled_from([None, 0, 1])),
        weights=lever(st.sampled_from([1.0, 2.0])),
        nodes=lever(st.sampled_from([0, 1])),
        sockets=lever(st.sampled_from([0, 0, 1])),
        port_gbps=draw(st.none() | st.sampled_from([1.0, 10.0])),
    )
    return Server(mix, setting)


@dataclass(frozen=True)
class Asked:
    """What the doors answer from: the same models in memory, in a folder, and in a service."""

    library: ModelLibrary
    folder: str
    service: Any

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the service's answer."""
        return self.service.post(path, json=body).json()


@pytest.fixture(scope="module")
def asked(library: ModelLibrary, folder: str, service: Any) -> Asked:
    """Return the models behind every door."""
    return Asked(library, folder, service)


#: Throughput, then as much as the door tells of: ends of the interval, solo throughput, verdict, reasons.
Told = tuple[Any, ...]


def whole(library: ModelLibrary, server: Server) -> list[Told]:
    """Return what the one question answers about every tenant."""
    return [of(item) for item in solve_server(library, server.mix, MACHINE, setting=server.setting).tenants]


def numbers(item: Any) -> tuple[float, ...]:
    return (item.throughput_mpps, *item.interval)


def of(item: Any) -> Told:
    return (*numbers(item), item.solo_mpps, str(item.verdict), item.reasons)


def told(row: Mapping[str, Any]) -> Told:
    """Return one tenant as a document or a table's row tells it."""
    ends = row["interval"] if "interval" in row else (row["low_mpps"], row["high_mpps"])
    return (row["throughput_mpps"], *ends, row["solo_mpps"], row["verdict"], tuple(row["reasons"]))


def listed(setting: ServerSetting) -> dict[str, Any]:
    """Return a setting as a request writes it."""
    fields = {name: getattr(setting, name) for name in ServerSetting.__dataclass_fields__}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items() if v is not None}


def printed(*words: str) -> dict[str, Any]:
    """Return the JSON that a command prints."""
    with redirect_stdout(io.StringIO()) as out:
        assert main([*words, "--json"]) == 0
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


def by_predict(asked: Asked, server: Server) -> list[Told]:
    """`slomo.predict`, asked about each tenant in turn."""
    turns = [server.first(place) for place in range(len(server.mix))]
    return [
        of(slomo.predict(turn.mix[0], turn.mix[1:], asked.library, machine=MACHINE, setting=turn.setting))
        for turn in turns
    ]


def by_post_predict(asked: Asked, server: Server) -> list[Told]:
    """`POST /v1/predict`, asked about each tenant in turn."""
    turns = [server.first(place) for place in range(len(server.mix))]
    return [
        told(
            asked.post(
                "/v1/predict",
                {"target": turn.keys[0], "competitors": turn.keys[1:], "setting": listed(turn.setting)},
            )
        )
        for turn in turns
    ]


def by_post_whatif(asked: Asked, server: Server) -> list[Told]:
    """`POST /v1/whatif`."""
    document = asked.post("/v1/whatif", {"tenants": server.keys, "setting": listed(server.setting)})
    return [told(each) for each in document["tenants"]]


def by_what_if(asked: Asked, server: Server) -> list[Told]:
    """`slomo.workflow.acting.whatif.what_if`."""
    answer = what_if(asked.library, server.mix, HERE, server.setting)
    assert (answer.outlook is None) == (len(on_sockets(server)) > 1)
    return [told(row) for row in answer.rows()]


def by_command_whatif(asked: Asked, server: Server) -> list[Told]:
    """`slomo whatif`, where a core of its own is a number that no other tenant has."""
    own = server.setting.cores and tuple(2 + i if core is None else core for i, core in enumerate(server.setting.cores))
    options = [
        word
        for name, values in listed(replace(server.setting, cores=own)).items()
        for word in (
            f"--{name.replace('_', '-')}",
            ",".join(f"{v:g}" for v in (values if isinstance(values, list) else [values])),
        )
    ]
    document = printed("whatif", *server.keys, "--models", asked.folder, "--machine", MACHINE, *options)
    return [told(row) for row in document["tenants"]]


def by_control(asked: Asked, server: Server) -> list[Told]:
    """What controllers and advice foresee, many settings at once."""
    situation = what_if(asked.library, server.mix, HERE, server.setting).situation
    assert situation is not None
    outlook = foresee_many(situation, [situation.open_settings, situation.settings])[1]
    return [(mpps,) for mpps in outlook.throughput_mpps.values()]


def by_batch(asked: Asked, server: Server) -> list[Told]:
    """`slomo.predict_batch`: every tenant a target."""
    turns = [server.first(place).keys for place in range(len(server.mix))]
    batch = slomo.predict_batch([turn[0] for turn in turns], [turn[1:] for turn in turns], asked.library)
    columns = (batch.throughput_mpps, batch.low_mpps, batch.high_mpps, batch.solo_mpps, batch.verdict, batch.reasons)
    return list(zip(*columns, strict=True))


def by_post_batch(asked: Asked, server: Server) -> list[Told]:
    """`POST /v1/predict/batch`: every tenant a target."""
    turns = [server.first(place).keys for place in range(len(server.mix))]
    questions = {"targets": [turn[0] for turn in turns], "mixes": [turn[1:] for turn in turns]}
    columns = asked.post("/v1/predict/batch", questions)
    names = ("throughput_mpps", "low_mpps", "high_mpps", "solo_mpps", "verdict", "reasons")
    return [(*row, tuple(reasons)) for *row, reasons in zip(*(columns[name] for name in names), strict=True)]


def by_pools(asked: Asked, server: Server) -> list[Told]:
    """Pools tell shares of solo throughput: predicted, and the interval's lower end."""
    count, setting = len(server.mix), server.setting
    masks, throttles = setting.ways or (None,) * count, setting.bandwidth_percent or (100.0,) * count
    plan = EnforcementPlan(
        "here",
        tuple(
            TenantSetting(str(place), llc_way_mask=mask, memory_bandwidth=MemoryBandwidth(percent))
            for place, (mask, percent) in enumerate(zip(masks, throttles, strict=True))
        ),
    )
    requests = {str(place): PoolRequest((place,), (), 2, 2, nf=key) for place, key in enumerate(server.keys)}
    outlook = PoolForesight(lambda: asked.library, HERE)(plan, requests)
    assert outlook.why == ""
    return list(zip(outlook.expected.values(), outlook.least.values(), strict=True))


def by_placement(asked: Asked, server: Server) -> list[Told]:
    """A socket is a mix of its own; a port that all share is a load for a tenant that it limits."""
    estimates = ThroughputEstimates(asked.library, confidence=0.5)
    host = Host(MACHINE, 8, 11, port_gbps=server.setting.port_gbps)
    rows: dict[int, Told] = {}
    for here in on_sockets(server):
        keys = [server.keys[place] for place in here]
        loaded = behind_port(host, keys, estimates)
        rates = estimates.rates(MACHINE, [tuple(loaded[key] for key in keys)])[0]
        rows |= {place: (rates[loaded[key]][0],) for place, key in zip(here, keys, strict=True)}
    return [rows[place] for place in range(len(server.mix))]


def by_chains(asked: Asked, server: Server) -> list[Told]:
    """The stages of chains on a node are tenants, each offered its chain's rate."""
    return by_nodes(node_rates(ThroughputEstimates(asked.library), MACHINE), server)


def by_nodes(estimate: Estimate, server: Server) -> list[Told]:
    """A node is a mix of its own, of tenants that each have a load."""
    sockets = on_sockets(server)
    stages = [[(server.mix[i].saturated.key, server.mix[i].traffic.offered_mpps or 0.0) for i in on] for on in sockets]
    solved = estimate([(node, tuple(each)) for node, each in enumerate(stages)])
    rows = {i: (mpps,) for on, rates in zip(sockets, solved, strict=True) for i, mpps in zip(on, rates, strict=True)}
    return [rows[place] for place in range(len(server.mix))]


def on_sockets(server: Server) -> list[list[int]]:
    """Return the tenants of each socket."""
    sockets = server.setting.sockets or (0,) * len(server.mix)
    return [[place for place, at in enumerate(sockets) if at == socket] for socket in sorted({*sockets})]


def throughput(row: Told) -> Told:
    return row[:1]


def of_solo(row: Told) -> Told:
    mpps, low, _, solo, *_ = row
    return mpps / solo, max(low / solo, 0.0)


@dataclass(frozen=True)
class Door:
    """A way to ask about a server: which of its axes can be asked about, and what the answer tells of each tenant."""

    ask: Callable[[Asked, Server], list[Told]]
    axes: Set[str]
    tells: Callable[[Told], Told] = tuple
    examples: int = 40


LOADS, PORT, SOCKETS = {"loads"}, {"port_gbps"}, {"sockets"}
MASKS = {"ways", "bandwidth_percent"}
EVERY = {"loads", *(each.name for each in fields(ServerSetting))}
#: Which door knows which axis. Placement and chains predict each socket as a mix of its own; placement takes no port on
#: a server with NICs on several sockets.
DOORS = {
    "predict": Door(by_predict, EVERY),
    "whatif": Door(by_what_if, EVERY),
    "control": Door(by_control, EVERY - SOCKETS, throughput),
    "POST predict": Door(by_post_predict, EVERY),
    "POST whatif": Door(by_post_whatif, EVERY),
    "slomo whatif": Door(by_command_whatif, EVERY, tuple, 12),
    "pools": Door(by_pools, LOADS | MASKS, of_solo),
    "placement": Door(by_placement, LOADS | PORT, throughput),
    "placement, sockets": Door(by_placement, LOADS | SOCKETS, throughput),
    "chains": Door(by_chains, LOADS | SOCKETS, throughput),
    "batch": Door(by_batch, LOADS),
    "POST batch": Door(by_post_batch, LOADS),
}


@pytest.mark.parametrize("name", DOORS)
def test_every_door_tells_the_same_of_a_server_with_every_axis_that_it_knows(asked: Asked, name: str) -> None:
    """To the last bit, whoever is named first."""
    door = DOORS[name]

    @given(servers())
    @settings(max_examples=door.examples, deadline=None)
    def tells_the_same(drawn: Server) -> None:
        server = drawn.known_by(door.axes)
        server = server.loaded if name == "chains" else server
        assert door.ask(asked, server) == [door.tells(row) for row in whole(asked.library, server)]

    tells_the_same()


@given(servers())
@settings(max_examples=20, deadline=None)
def test_controllers_with_profiles_alone_say_what_models_made_of_them_do(library: ModelLibrary, drawn: Server) -> None:
    """The guard and `numa` have no trained models: each solves its profiles, `numa` where nothing is divided."""
    known = {model.workload.key: model.allocation for model in library.values() if model.allocation is not None}
    responses, one = {key: each.response for key, each in known.items()}, next(iter(known.values()))
    memory = replace(one.memory, most_gb_s=HERE.capacities().memory_gb_s)
    profile = PartitionProfile(MACHINE, responses, memory, HERE.fingerprint, one.errors, one.shared_errors)
    models = library_of([profile], HERE)
    asked = Asked(models, "", None)
    server = drawn.known_by(EVERY - SOCKETS)
    assert by_what_if(asked, server) == whole(models, server)
    assert by_control(asked, server) == [throughput(row) for row in whole(models, server)]
    tenants = {str(i): NumaTenant(each.saturated, responses[each.saturated.key], i) for i, each in enumerate(drawn.mix)}
    rates = NumaController("here", HERE, tenants, memory)._rates
    server = drawn.known_by(LOADS | SOCKETS)
    assert by_nodes(rates, server.loaded) == [throughput(row) for row in whole(models, server.loaded)]


@given(servers())
@settings(max_examples=20, deadline=None)
def test_a_target_with_its_own_arguments_is_a_server_like_any_other(asked: Asked, drawn: Server) -> None:
    """Loads, the port and functions on the target's core, in Python, over HTTP and on the command line."""
    server = drawn.known_by({"loads", "port_gbps", "cores"})
    cores, port = server.setting.cores or (None,) * len(server.mix), server.setting.port_gbps
    partners = [i for i, core in enumerate(cores) if i and core is not None and core == cores[0]]
    others = [i for i in range(1, len(cores)) if i not in partners]
    on_core = (0,) * (1 + len(partners)) + (None,) * len(others)
    server = Server(server.mix, ServerSetting(port_gbps=port)).reordered([0, *partners, *others])
    expected = whole(asked.library, replace(server, setting=replace(server.setting, cores=on_core)))[0]
    target, load = server.mix[0].saturated.key, server.mix[0].traffic.offered_mpps
    beside, here = server.keys[1 + len(partners) :], server.keys[1 : 1 + len(partners)]
    options = {"shares_core_with": here, "port_gbps": port, "offered_mpps": load}
    assert of(slomo.predict(target, beside, asked.library, machine=MACHINE, **options)) == expected
    assert told(asked.post("/v1/predict", {"target": target, "competitors": beside, **options})) == expected
    words = [
        word for flag, keys in (("--with", beside), ("--shares-core-with", here)) for w in keys for word in (flag, w)
    ]
    words += [] if port is None else ["--port-gbps", str(port)]
    words += [] if load is None else ["--offered", str(load)]
    assert (
        told(printed("predict", "--target", target, *words, "--models", asked.folder, "--machine", MACHINE)) == expected
    )


@given(servers(), st.sampled_from(["auto", "composed"]), st.sampled_from([None, 0.01]), st.sampled_from([0.5, 0.9]))
@settings(max_examples=15, deadline=None)
def test_every_door_knows_how_to_predict(
    library: ModelLibrary, service: Any, server: Server, method: Any, window_s: float | None, coverage: float
) -> None:
    """Method, length of the measurement and coverage mean the same in Python, in batches and over HTTP."""
    how: AnswerOptions = {"method": method, "coverage": coverage, "window_s": window_s}
    keys = [workload.key for workload in server.mix]
    whole = [numbers(tenant) for tenant in solve_server(library, server.mix, MACHINE, **how).tenants]
    told = service.post("/v1/whatif", json={"tenants": keys, **how}).json()
    assert [(each["throughput_mpps"], *each["interval"]) for each in told["tenants"]] == whole
    told = service.post("/v1/predict", json={"target": keys[0], "competitors": keys[1:], **how}).json()
    assert (told["throughput_mpps"], *told["interval"]) == whole[0]
    columns = service.post("/v1/predict/batch", json={"targets": [keys[0]], "mixes": [keys[1:]], **how}).json()
    assert tuple(columns[name][0] for name in ("throughput_mpps", "low_mpps", "high_mpps")) == whole[0]
    batch = slomo.predict_batch([keys[0]], [keys[1:]], library, **how)
    assert (batch.throughput_mpps[0], batch.low_mpps[0], batch.high_mpps[0]) == whole[0]
    answer = what_if(library, server.mix, HERE, **how)
    assert [(row["throughput_mpps"], row["low_mpps"], row["high_mpps"]) for row in answer.rows()] == whole
    assert answer.outlook is not None
    assert list(answer.outlook.throughput_mpps.values()) == [mpps for mpps, _, _ in whole]


@pytest.mark.parametrize(
    "contradiction",
    [
        {"method": "equilibrium", "compat": "published"},
        {"method": "equilibrium", "model": "slomo-xgb"},
        {"port_gbps": 1.0, "setting": ServerSetting(port_gbps=2.0)},
        {"shares_core_with": ["nat"], "setting": ServerSetting(cores=(0, 0, 1))},
    ],
)
def test_options_that_contradict_each_other_are_refused_at_every_door(asked: Asked, contradiction: Any) -> None:
    """No door picks one of the two on its own."""
    with pytest.raises(InvalidValueError):
        slomo.predict("lpm", ["stats"], asked.library, machine=MACHINE, **contradiction)
    sent = {name: listed(v) if name == "setting" else v for name, v in contradiction.items()}
    question = {"target": "lpm", "competitors": ["stats"], **sent}
    assert asked.service.post("/v1/predict", json=question).status_code == 422
    if "method" in contradiction:
        with pytest.raises(InvalidValueError):
            what_if(asked.library, (Workload("lpm"),), HERE, **contradiction)
        with pytest.raises(InvalidValueError):
            slomo.predict_batch("lpm", ["stats"], asked.library, **contradiction)
        bodies = {"whatif": {"tenants": ["lpm"]}, "predict/batch": {"targets": ["lpm"], "mixes": [["stats"]]}}
        for path, body in bodies.items():
            assert asked.service.post(f"/v1/{path}", json={**body, **sent}).status_code == 422
        words = ["--models", asked.folder, *(word for name in contradiction for word in (f"--{name}", sent[name]))]
        assert main(["predict", "--target", "lpm", *words]) == main(["whatif", "lpm", *words]) == 2


def test_a_mix_is_written_the_same_at_every_door(library: ModelLibrary, service: Any, folder: str) -> None:
    """What slomo prints, ``2 x stats + nat``, is read everywhere; so are counts and lists."""
    text, words, plain = "2 x stats + nat", ["stats:2", "nat"], ["stats", "stats", "nat"]
    expected = numbers(slomo.predict("lpm", plain, library))
    for written in (text, [text], words, {"stats": 2, "nat": 1}):
        assert numbers(slomo.predict("lpm", written, library)) == expected
    for asked in ([text], words):
        assert numbers(Predictor(library).predict("lpm", asked)) == expected
        assert slomo.predict_batch("lpm", [asked], library).throughput_mpps[0] == expected[0]
        told = service.post("/v1/predict", json={"target": "lpm", "competitors": asked}).json()
        assert told["throughput_mpps"] == expected[0]
        columns = service.post("/v1/predict/batch", json={"targets": ["lpm"], "mixes": [asked]}).json()
        assert columns["throughput_mpps"] == [expected[0]]
        told = service.post("/v1/whatif", json={"tenants": ["lpm", *asked]}).json()
        assert told["tenants"][0]["throughput_mpps"] == expected[0]
        told = printed("predict", "--target", "lpm", *(w for one in asked for w in ("--with", one)), "--models", folder)
        assert told["throughput_mpps"] == expected[0]
        told = printed("whatif", "lpm", *asked, "--models", folder)
        assert told["tenants"][0]["throughput_mpps"] == expected[0]
    (mix,) = named_mixes_plan([f"lpm + {text}"], MACHINE).colocations
    assert [each.nf for each in mix.tenants] == ["lpm", *plain]


def test_an_option_of_one_door_is_an_option_of_all() -> None:
    """Whoever adds a setting of a server or an option of predictions learns which door lacks it."""
    names = {each.name for each in fields(ServerSetting)}
    assert {*SettingBody.__struct_fields__} == names
    assert {each.name for each in load_command("whatif").params} >= names | {*AnswerOptions.__annotations__}
    how = {each.name for each in fields(PredictionOptions)} - {"explain"}
    assert {*AnswerOptions.__annotations__} == {*AnswerBody.__struct_fields__} == how
    assert {each.name for each in load_command("predict").params} >= {*how, "port_gbps"}
    for body in (QuestionBody, Questions, WhatIf):
        assert issubclass(body, AnswerBody)


@given(st.lists(st.sampled_from(["lpm", "nat", "stats", "firewall"]), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_the_service_answers_in_batches_what_predict_answers(
    library: ModelLibrary, service: Any, mix: list[str]
) -> None:
    """Every field of an answer from the batch is that of `slomo.predict`, verdict and reasons included."""
    prediction = slomo.predict(mix[0], mix[1:], library, machine=MACHINE, explain=False)
    told = service.post("/v1/predict", json={"target": mix[0], "competitors": mix[1:]}).json()
    assert {name: told[name] for name in prediction.to_dict()} == json.loads(json.dumps(prediction.to_dict()))
    batch = Predictor(library, MACHINE).predict_batch([mix[0]], [mix[1:]])
    assert (batch.verdict[0], batch.reasons[0]) == (str(prediction.verdict), prediction.reasons)
    columns = service.post("/v1/predict/batch", json={"targets": [mix[0]], "mixes": [mix[1:]]}).json()
    assert (columns["verdict"], columns["reasons"]) == ([str(prediction.verdict)], [list(prediction.reasons)])


def test_what_was_not_profiled_over_ways_is_unsupported_at_every_door(library: ModelLibrary, service: Any) -> None:
    """No other theory stands in for an axis that was not measured."""
    mix, setting = [Workload("lpm"), Workload("firewall")], ServerSetting(ways=(0x3, FULL & ~0x3))
    for ask in (
        lambda: solve_server(library, mix, MACHINE, setting=setting),
        lambda: slomo.predict(mix[0], mix[1:], library, setting=setting),
        lambda: what_if(library, mix, HERE, setting),
        lambda: what_if(library, mix, HERE, with_advice=True),
    ):
        with pytest.raises(UnsupportedPredictionError, match="firewall"):
            ask()
    told = service.post("/v1/whatif", json={"tenants": ["lpm", "firewall"], "setting": listed(setting)})
    assert (told.status_code, "firewall" in told.json()["detail"]) == (422, True)
    plain = what_if(library, mix, HERE)
    assert [row["throughput_mpps"] for row in plain.rows()] == list(solve_server(library, mix, MACHINE).throughput_mpps)


@pytest.mark.parametrize(
    ("field", "place"), [("cores", 99), ("cores", -1), ("sockets", 5), ("nodes", 7), ("ways", 0x5), ("ways", 1 << 20)]
)
def test_places_that_the_machine_does_not_have_are_refused(library: ModelLibrary, field: str, place: int) -> None:
    """A neighbour on a socket that does not exist is no neighbour, and the answer would look supported."""
    known = {"environment": {"machines": {MACHINE: HERE.to_dict()}}}
    models = ModelLibrary(replace(model, manifest={**model.manifest, **known}) for model in library.values())
    says = f"{field}: {place}, but '{MACHINE}' has"
    if field == "ways":
        says = f"way mask {place:#x} on '{MACHINE}', needed 1 or more adjacent ways of {FULL:#x}"
    with pytest.raises(InvalidValueError, match=says):
        slomo.predict("lpm", ["nat"], models, setting=ServerSetting(**{field: (1, place)}))


def test_memory_is_near_on_the_socket_of_the_nic_at_every_door(library: ModelLibrary) -> None:
    """Models know which socket has the NIC: a node is near or far to all doors, also where the NIC is on socket 1."""
    here = replace(HERE, nic_socket=1)
    there = ModelLibrary([replace(model, capacities=here.capacities()) for model in library.values()])
    again = Capacities.from_dict(there.find("lpm").capacities.to_dict())  # type: ignore[union-attr]
    assert (again, "nic_socket" in HERE.capacities().to_dict()) == (here.capacities(), False)
    near, far = (ServerSetting(nodes=(node, node)) for node in (1, 0))
    for setting, same in ((near, ServerSetting()), (far, ServerSetting(nodes=(1, 1)))):
        expected = [numbers(tenant) for tenant in solve_server(library, ["lpm", "nat"], setting=same).tenants]
        asked = solve_server(there, ["lpm", "nat"], setting=setting)
        assert [numbers(tenant) for tenant in asked.tenants] == expected
        assert numbers(slomo.predict("lpm", ["nat"], there, setting=setting)) == expected[0]
        rows = what_if(there, ["lpm", "nat"], here, setting).rows()
        assert [(row["throughput_mpps"], row["low_mpps"], row["high_mpps"]) for row in rows] == expected


def test_a_saved_model_answers_about_ways_as_before(library: ModelLibrary, tmp_path: Any) -> None:
    """What was profiled over ways is a part of the model (law 7)."""
    again = ModelLibrary.load(library.save(tmp_path / "models"))
    setting = ServerSetting(ways=(0x3, 0xFC), bandwidth_percent=(100.0, 20.0))
    assert again.find("lpm", MACHINE).allocation == library.find("lpm", MACHINE).allocation
    asked = [solve_server(each, ["lpm", "nat"], MACHINE, setting=setting) for each in (library, again)]
    assert numbers(asked[0].tenants[0]) == numbers(asked[1].tenants[0])
