"""One server, asked about through every door with everything that can be set on it: the same bits (law 11)."""

import io
import json
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slomo
from slomo.cli.main import load_command, main
from slomo.control.pools.foresight import PoolForesight
from slomo.control.pools.request import PoolRequest
from slomo.enforce.plan import EnforcementPlan, MemoryBandwidth, TenantSetting
from slomo.errors import InvalidValueError, UnsupportedPredictionError
from slomo.models.library import ModelLibrary
from slomo.placement.chains.predicted import node_rates
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.feasibility.mixes import Host
from slomo.placement.feasibility.port import behind_port
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


def numbers(item: Any) -> tuple[float, ...]:
    return (item.throughput_mpps, *item.interval)


def said(item: Any) -> tuple[float, str, tuple[str, ...]]:
    """Return what stands beside the numbers: solo throughput, verdict and reasons."""
    return item.solo_mpps, str(item.verdict), item.reasons


def first(server: Server, place: int) -> tuple[list[Workload], ServerSetting]:
    """Return the same server with another tenant named first."""
    order = [place, *(i for i in range(len(server.mix)) if i != place)]
    return [server.mix[i] for i in order], server.setting.only(order)


def listed(setting: ServerSetting) -> dict[str, Any]:
    """Return a setting as a request writes it."""
    fields = {name: getattr(setting, name) for name in ServerSetting.__dataclass_fields__}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items() if v is not None}


@given(servers())
@settings(max_examples=40, deadline=None)
def test_every_door_says_the_same_of_a_server_with_anything_set(
    library: ModelLibrary, service: Any, server: Server
) -> None:
    """predict, whole servers, what-if, control, and both questions over HTTP; whoever is named first."""
    whole = solve_server(library, server.mix, MACHINE, setting=server.setting)
    wanted = [numbers(tenant) for tenant in whole.tenants]
    names = [workload.key for workload in server.mix]
    for place, tenant in enumerate(whole.tenants):
        mix, setting = first(server, place)
        prediction = slomo.predict(mix[0], mix[1:], library, machine=MACHINE, setting=setting)
        assert numbers(prediction) == wanted[place]
        assert said(prediction) == said(tenant)
        body = {"target": mix[0].key, "competitors": [item.key for item in mix[1:]], "setting": listed(setting)}
        told = service.post("/v1/predict", json=body).json()
        assert (told["throughput_mpps"], *told["interval"]) == wanted[place]
        assert (told["solo_mpps"], told["verdict"], tuple(told["reasons"])) == said(tenant)
    told = service.post("/v1/whatif", json={"tenants": names, "setting": listed(server.setting)}).json()
    assert [(each["throughput_mpps"], *each["interval"]) for each in told["tenants"]] == wanted
    assert [(each["solo_mpps"], each["verdict"], tuple(each["reasons"])) for each in told["tenants"]] == [
        said(tenant) for tenant in whole.tenants
    ]
    asked = what_if(library, server.mix, HERE, server.setting)
    assert [(row["throughput_mpps"], row["low_mpps"], row["high_mpps"]) for row in asked.rows()] == wanted
    assert (asked.outlook is None) == (len({*(server.setting.sockets or (0,))}) > 1)
    if asked.outlook is not None:
        assert list(asked.outlook.throughput_mpps.values()) == [mpps for mpps, _, _ in wanted]


def printed(*words: str) -> dict[str, Any]:
    """Return the JSON that a command prints."""
    with redirect_stdout(io.StringIO()) as out:
        assert main([*words, "--json"]) == 0
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


@given(servers())
@settings(max_examples=12, deadline=None)
def test_the_command_line_says_what_a_server_does(library: ModelLibrary, folder: str, server: Server) -> None:
    """`whatif` knows every setting of a server; `predict` knows the port."""
    cores = server.setting.cores and tuple(
        2 + i if core is None else core for i, core in enumerate(server.setting.cores)
    )
    setting = replace(server.setting, cores=cores)
    whole = solve_server(library, server.mix, MACHINE, setting=setting)
    options = [
        word
        for name, values in listed(setting).items()
        for word in (
            f"--{name.replace('_', '-')}",
            ",".join(f"{v:g}" for v in (values if isinstance(values, list) else [values])),
        )
    ]
    keys = [workload.key for workload in server.mix]
    told = printed("whatif", *keys, "--models", folder, "--machine", MACHINE, *options)
    assert [(row["throughput_mpps"], row["low_mpps"], row["high_mpps"]) for row in told["tenants"]] == [
        numbers(tenant) for tenant in whole.tenants
    ]
    alone = ServerSetting(port_gbps=server.setting.port_gbps)
    port = [] if alone.port_gbps is None else ["--port-gbps", str(alone.port_gbps)]
    beside = [word for key in keys[1:] for word in ("--with", key)]
    told = printed("predict", "--target", keys[0], *beside, "--models", folder, "--machine", MACHINE, *port)
    expected = solve_server(library, server.mix, MACHINE, setting=alone).tenants[0]
    assert (told["throughput_mpps"], *told["interval"]) == numbers(expected)


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
    rows = what_if(library, server.mix, HERE, **how).rows()
    assert [(row["throughput_mpps"], row["low_mpps"], row["high_mpps"]) for row in rows] == whole


def test_a_mix_is_written_the_same_at_every_door(library: ModelLibrary, service: Any, folder: str) -> None:
    """What slomo prints, ``2 x stats + nat``, is read everywhere; so are counts and lists."""
    text, words, plain = "2 x stats + nat", ["stats:2", "nat"], ["stats", "stats", "nat"]
    wanted = numbers(slomo.predict("lpm", plain, library))
    for written in (text, [text], words, {"stats": 2, "nat": 1}):
        assert numbers(slomo.predict("lpm", written, library)) == wanted
    for asked in ([text], words):
        assert numbers(Predictor(library).predict("lpm", asked)) == wanted
        assert slomo.predict_batch("lpm", [asked], library).throughput_mpps[0] == wanted[0]
        told = service.post("/v1/predict", json={"target": "lpm", "competitors": asked}).json()
        assert told["throughput_mpps"] == wanted[0]
        columns = service.post("/v1/predict/batch", json={"targets": ["lpm"], "mixes": [asked]}).json()
        assert columns["throughput_mpps"] == [wanted[0]]
        told = service.post("/v1/whatif", json={"tenants": ["lpm", *asked]}).json()
        assert told["tenants"][0]["throughput_mpps"] == wanted[0]
        told = printed("predict", "--target", "lpm", *(w for one in asked for w in ("--with", one)), "--models", folder)
        assert told["throughput_mpps"] == wanted[0]
        told = printed("whatif", "lpm", *asked, "--models", folder)
        assert told["tenants"][0]["throughput_mpps"] == wanted[0]
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


@given(servers())
@settings(max_examples=40, deadline=None)
def test_pools_say_what_a_server_does(library: ModelLibrary, server: Server) -> None:
    """A pool's masks and throttles are a setting like any other."""
    mix = [workload.saturated for workload in server.mix]
    setting = ServerSetting(ways=server.setting.ways, bandwidth_percent=server.setting.bandwidth_percent)
    whole = solve_server(library, mix, MACHINE, setting=setting)
    masks = setting.ways or (None,) * len(mix)
    throttles = setting.bandwidth_percent or (100.0,) * len(mix)
    plan = EnforcementPlan(
        "here",
        tuple(
            TenantSetting(str(place), llc_way_mask=mask, memory_bandwidth=MemoryBandwidth(percent))
            for place, (mask, percent) in enumerate(zip(masks, throttles, strict=True))
        ),
    )
    requests = {str(place): PoolRequest((place,), (), 2, 2, nf=workload.nf) for place, workload in enumerate(mix)}
    outlook = PoolForesight(lambda: library, HERE)(plan, requests)
    assert outlook.why == ""
    assert list(outlook.expected.values()) == [t.throughput_mpps / t.solo_mpps for t in whole.tenants]


@given(servers())
@settings(max_examples=40, deadline=None)
def test_placement_says_what_a_server_does_at_any_load_behind_any_port(library: ModelLibrary, server: Server) -> None:
    """Loads are part of a name; a port that all share is a load for whom it cuts short."""
    port = server.setting.port_gbps
    whole = solve_server(library, server.mix, MACHINE, setting=ServerSetting(port_gbps=port))
    estimates = ThroughputEstimates(library, confidence=0.5)
    keys = [workload.key for workload in server.mix]
    loaded = behind_port(Host(MACHINE, 8, 11, port_gbps=port), keys, estimates)
    rates = estimates.rates(MACHINE, [tuple(loaded[key] for key in keys)])[0]
    assert [rates[loaded[key]][0] for key in keys] == [tenant.throughput_mpps for tenant in whole.tenants]


@given(servers())
@settings(max_examples=15, deadline=None)
def test_a_node_of_chains_serves_what_a_server_does(library: ModelLibrary, server: Server) -> None:
    """The stages of chains on a node are tenants, each offered its chain's rate."""
    mix = [item.offered(item.traffic.offered_mpps or 20.0) for item in server.mix]
    stages = tuple((item.saturated.key, item.traffic.offered_mpps or 0.0) for item in mix)
    whole = solve_server(library, mix, MACHINE)
    (rates,) = node_rates(ThroughputEstimates(library), MACHINE)([(0, stages)])
    assert rates == [tenant.throughput_mpps for tenant in whole.tenants]


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


@pytest.mark.parametrize(("field", "place"), [("cores", 99), ("cores", -1), ("sockets", 5), ("nodes", 7)])
def test_places_that_the_machine_does_not_have_are_refused(library: ModelLibrary, field: str, place: int) -> None:
    """A neighbour on a socket that does not exist is no neighbour, and the answer would look supported."""
    known = {"environment": {"machines": {MACHINE: HERE.to_dict()}}}
    models = ModelLibrary(replace(model, manifest={**model.manifest, **known}) for model in library.values())
    with pytest.raises(InvalidValueError, match=f"{field}: {place}, but '{MACHINE}' has"):
        slomo.predict("lpm", ["nat"], models, setting=ServerSetting(**{field: (0, place)}))


def test_memory_is_near_on_the_socket_of_the_nic_at_every_door(library: ModelLibrary) -> None:
    """Models know which socket has the NIC: a node is near or far to all doors, also where the NIC is on socket 1."""
    here = replace(HERE, nic_socket=1)
    there = ModelLibrary([replace(model, capacities=here.capacities()) for model in library.values()])
    again = Capacities.from_dict(there.find("lpm").capacities.to_dict())  # type: ignore[union-attr]
    assert (again, "nic_socket" in HERE.capacities().to_dict()) == (here.capacities(), False)
    near, far = (ServerSetting(nodes=(node, node)) for node in (1, 0))
    for setting, same in ((near, ServerSetting()), (far, ServerSetting(nodes=(1, 1)))):
        wanted = [numbers(tenant) for tenant in solve_server(library, ["lpm", "nat"], setting=same).tenants]
        asked = solve_server(there, ["lpm", "nat"], setting=setting)
        assert [numbers(tenant) for tenant in asked.tenants] == wanted
        assert numbers(slomo.predict("lpm", ["nat"], there, setting=setting)) == wanted[0]
        rows = what_if(there, ["lpm", "nat"], here, setting).rows()
        assert [(row["throughput_mpps"], row["low_mpps"], row["high_mpps"]) for row in rows] == wanted


def test_a_saved_model_answers_about_ways_as_before(library: ModelLibrary, tmp_path: Any) -> None:
    """What was profiled over ways is a part of the model (law 7)."""
    again = ModelLibrary.load(library.save(tmp_path / "models"))
    setting = ServerSetting(ways=(0x3, 0xFC), bandwidth_percent=(100.0, 20.0))
    assert again.find("lpm", MACHINE).allocation == library.find("lpm", MACHINE).allocation
    asked = [solve_server(each, ["lpm", "nat"], MACHINE, setting=setting) for each in (library, again)]
    assert numbers(asked[0].tenants[0]) == numbers(asked[1].tenants[0])
