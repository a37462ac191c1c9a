"""What a new user types first: slips are told in words with what to write, results show themselves."""

import inspect
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

import slomo
from slomo.client import Client
from slomo.errors import SlomoError, UnknownNameError
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import NFModel
from slomo.prediction.question import solve_server
from slomo.records.dataset import ProfileDataset
from slomo.workflow.acting.whatif import what_if
from slomo.workflow.campaign import PlanSettings, RunSettings
from slomo.workflow.profile import profile
from slomo.workflow.progress import ProgressBar, listening

CLUSTER = slomo.Cluster.uniform("e5-2620v4", 2)

SLIPS: dict[str, tuple[Callable[[ModelLibrary], object], str]] = {
    "percent": (lambda _: slomo.Request("a", "lpm", slomo.SLO(min_share=90)), "not a percentage: 0.9 for 90 %"),
    "coverage": (lambda lib: slomo.predict("lpm", "nat", lib, coverage=90), "not a percentage: 0.9 for 90 %"),
    "bare-slo": (lambda _: slomo.Request("a", ("lpm",), 0.8), r"write slo=SLO\(min_share=0.8\)"),  # type: ignore[arg-type]
    "chain": (lambda _: slomo.Request("a", 3), "write for instance 'stats'"),  # type: ignore[arg-type]
    "share-text": (lambda _: slomo.SLO(min_share="0.9"), "needed a number above 0"),  # type: ignore[arg-type]
    "replicas": (lambda _: slomo.Request("a", "lpm", replicas="2"), "needed a whole number"),  # type: ignore[arg-type]
    "competitor": (lambda lib: slomo.predict("lpm", [3], lib), "3 names no workload"),  # type: ignore[list-item]
    "competitors": (lambda lib: slomo.predict("lpm", 3, lib), "nor a list of them"),  # type: ignore[arg-type]
    "library": (lambda _: slomo.predict("lpm", "nat", None), "no library of models"),  # type: ignore[arg-type]
    "missing-file": (lambda _: slomo.train("nosuch.parquet"), "nosuch.parquet: file not found"),
    "no-dataset": (lambda _: slomo.train(3), "3 is no dataset"),  # type: ignore[arg-type]
    "no-cluster": (lambda lib: slomo.Placer(lib, 3), "Cluster.uniform"),  # type: ignore[arg-type]
    "no-request": (lambda lib: slomo.Placer(lib, CLUSTER).admit("lpm"), "'lpm' is no request"),  # type: ignore[arg-type]
    "nested-target": (lambda lib: slomo.predict(["lpm"], "nat", lib), r"\['lpm'\] names no workload"),  # type: ignore[arg-type]
    "count": (lambda lib: slomo.predict("lpm", {"nat": "x"}, lib), "instances of nat is 'x'"),  # type: ignore[dict-item]
    "too-many": (lambda lib: slomo.predict("lpm", {"nat": 10**9}, lib), "instances of nat is 1000000000, .* 0 to 4096"),
    "load": (lambda lib: slomo.predict("lpm", "nat", lib, offered_mpps="2"), "offered_mpps is '2'"),  # type: ignore[arg-type]
    "too-much-load": (lambda lib: slomo.predict("lpm", "nat", lib, offered_mpps=1e300), "a rate above 0 to 1e6 Mpps"),
    "port": (lambda lib: slomo.predict("lpm", "nat", lib, port_gbps="x"), "port_gbps is 'x'"),  # type: ignore[arg-type]
    "window": (lambda lib: slomo.predict("lpm", "nat", lib, window_s=-1), "window_s is -1"),
    "machine": (lambda lib: slomo.predict("lpm", "nat", lib, machine=3), "needed a name or a Machine"),  # type: ignore[arg-type]
    "setting": (lambda lib: slomo.predict("lpm", "nat", lib, setting={}), "needed a ServerSetting"),  # type: ignore[arg-type]
    "not-modelled": (
        lambda lib: slomo.predict("lpn", "nat", lib),
        "unknown network function 'lpn' among the models of",
    ),
    "runs": (lambda _: slomo.profile("lpm", runs="x"), "runs is 'x', needed a whole number"),  # type: ignore[arg-type]
    "half-a-run": (lambda _: slomo.profile("lpm", runs=2.5), "runs is 2.5"),  # type: ignore[arg-type]
    "seed": (lambda _: slomo.profile("lpm", plan="solo", seed="x"), "seed is 'x'"),  # type: ignore[arg-type]
    "jobs": (lambda _: slomo.profile("lpm", plan="solo", jobs="x"), "jobs is 'x'"),  # type: ignore[arg-type]
    "design": (lambda _: slomo.profile("lpm", design=3), "needed a name or points"),  # type: ignore[arg-type]
    "loads": (lambda _: slomo.profile("lpm", plan="solo", latency="x"), "loads are 'x'"),  # type: ignore[arg-type]
    "own one": (lambda _: slomo.profile("lpm", plan="solo", own="a.yaml"), "'a.yaml' is no NetworkFunction"),  # type: ignore[arg-type]
    "own": (lambda _: slomo.profile("lpm", plan="solo", own=["a.yaml"]), "'a.yaml' is no NetworkFunction"),  # type: ignore[list-item]
    "store": (lambda _: slomo.profile("lpm", plan="solo", store=3), "store is 3"),  # type: ignore[arg-type]
    "target-error": (lambda _: slomo.profile("lpm", target_error="x"), "target_error is 'x'"),  # type: ignore[arg-type]
    "mixes": (lambda _: slomo.profile("lpm", plan="mixes", mixes="x"), "mix 'x' has 1 network function,"),
    "negative-seed": (lambda _: slomo.profile("lpm", plan="solo", seed=-1), "seed is -1, needed a whole number from 0"),
    "training-seed": (lambda _: slomo.train("slomo-e5-2620v4", seed=-1), "seed is -1, needed a whole number from 0"),
    "packet-size": (lambda _: slomo.Traffic(packet_size_b="64"), "packet_size_b is '64', needed a number"),  # type: ignore[arg-type]
    "traffic": (lambda _: slomo.Workload("lpm", traffic={}), "is no Traffic"),  # type: ignore[arg-type]
    "workload": (lambda _: slomo.Workload(3), "3 is no name"),  # type: ignore[arg-type]
    "configuration": (lambda _: slomo.Workload("lpm", 3), "configuration is 3, needed a mapping"),  # type: ignore[arg-type]
    "co-location": (lambda _: slomo.Colocation("silver-4110", "lpm"), "'lpm' is no Workload"),  # type: ignore[arg-type]
    "servers": (lambda _: slomo.Cluster(3), "3 is no Server"),  # type: ignore[arg-type]
    "server-count": (lambda _: slomo.Cluster.uniform("e5-2620v4", "3"), "servers of a cluster is '3'"),  # type: ignore[arg-type]
    "too-many-servers": (lambda _: slomo.Cluster.uniform("e5-2620v4", 10**9), "from 1 to 200000"),
    "request-id": (lambda _: slomo.Request(3, "lpm"), "its id is no text"),  # type: ignore[arg-type]
    "placer-library": (lambda _: slomo.Placer("models", CLUSTER), "is no library of models"),  # type: ignore[arg-type]
    "selector": (lambda _: slomo.Request("a", "lpm", selector=["x"]), "needed a mapping"),  # type: ignore[arg-type]
    "spread": (lambda _: slomo.Request("a", "lpm", spread=3), "3 is no Spread"),  # type: ignore[arg-type]
    "no-name": (lambda _: slomo.Workload(""), "'' is no name"),
    "name-with-traffic": (lambda _: slomo.Workload("lpm@1500B"), "'lpm@1500B' is no name"),
    "frame-for-dataset": (lambda lib: slomo.train(lib), "a ModelLibrary is no dataset"),
    "address-without-http": (lambda _: Client("localhost:8080"), "'localhost:8080' is no address"),
    "request-document": (lambda _: slomo.Request.from_dict({"id": "a", "nff": "lpm"}), "'nff': is not known"),
    "cluster-document": (lambda _: slomo.Cluster.from_dict([]), "a list of 0, needed a mapping"),  # type: ignore[arg-type]
    "service-address": (lambda _: Client(None), "None is no address"),  # type: ignore[arg-type]
    "service-patience": (lambda _: Client("http://localhost", timeout_s="x"), "timeout_s is 'x'"),  # type: ignore[arg-type]
    "metrics": (lambda _: slomo.MetricVector(3), "metrics are 3, needed a mapping"),  # type: ignore[arg-type]
    "dataset-number": (lambda _: slomo.load_dataset(3), "dataset is 3, needed text or a path"),  # type: ignore[arg-type]
    "library-number": (lambda _: slomo.load_library(3), "int is no library of models"),  # type: ignore[arg-type]
    "no-models": (lambda _: slomo.load_library("nowhere"), "slomo train slomo-e5-2620v4 --models nowhere"),
    "part-of-a-name": (lambda _: slomo.load_machine("e5"), "did you mean 'e5-2620v4'"),
    "near-name": (lambda _: slomo.load_network_function("lpn"), "did you mean 'lpm'"),
}


@pytest.mark.parametrize("name", SLIPS)
def test_slips_are_told_in_words(name: str, toy_library: ModelLibrary) -> None:
    """A slip is an error of slomo with exit code 2 that says what to write."""
    slip, told = SLIPS[name]

    with pytest.raises(SlomoError, match=told) as caught:
        slip(toy_library)
    assert caught.value.exit_code == 2


def test_one_text_and_a_mapping_stand_for_a_list(toy_library: ModelLibrary) -> None:
    """Competitors are named with a count or without brackets, or each with its count; so is a target to profile."""
    both = slomo.predict("lpm", ["nat", "nat"], toy_library)
    assert slomo.predict("lpm", "nat:2", toy_library) == slomo.predict("lpm", {"nat": 2}, toy_library) == both
    assert profile("l2fwd", plan="solo").targets == ("l2fwd@64B,100000f",)


def test_a_shipped_dataset_loads_by_its_name() -> None:
    """What `train` takes by name, `load_dataset` takes by name."""
    assert slomo.load_dataset("slomo-silver-4110").machines == ("silver-4110",)
    with pytest.raises(UnknownNameError, match="did you mean 'slomo-silver-4110'"):
        slomo.load_dataset("silver-4110")


def test_a_library_is_a_data_frame_of_its_models(toy_library: ModelLibrary) -> None:
    """One row per model, with what it does alone."""
    frame = toy_library.to_frame()

    assert list(frame["workload"]) == [key for _, key in toy_library]
    assert (frame["solo_mpps"] > 0).all()


def test_a_dataset_may_be_named_by_its_path(toy_composed: ProfileDataset, tmp_path: Path) -> None:
    """Training takes the path that `profile --out` wrote, one target without brackets, and only the families named."""
    toy_composed.to_parquet(tmp_path / "profile.parquet")
    library = slomo.train(tmp_path / "profile.parquet", models=["none", "dobrescu"], targets="lpm")

    (model,) = library.values()
    assert (model.workload.nf, set(model.sensitivity)) == ("lpm", {"none", "dobrescu"})


def test_a_name_is_no_path() -> None:
    """What looks like a name is looked up among names, with the nearest."""
    with pytest.raises(UnknownNameError, match="did you mean 'slomo-e5-2620v4'"):
        slomo.train("slomo-e5-262v4")


def test_signatures_of_the_front_door_are_whole() -> None:
    """No name of `import slomo`, and no public method of it, hides its options behind ``**``."""
    hidden = []
    for name in slomo.__all__:
        value = getattr(slomo, name)
        members = {name: value}
        if isinstance(value, type):
            inside = {
                f"{name}.{key}": getattr(item, "__func__", item) for key, item in vars(value).items() if key[0] != "_"
            }
            members |= {key: item for key, item in inside.items() if inspect.isfunction(item)}
        hidden += [key for key, item in members.items() if "**" in str(inspect.signature(item))]

    assert hidden == []


def test_defaults_are_those_of_the_settings() -> None:
    """`profile` has every setting of a campaign, with its default."""
    given = inspect.signature(slomo.profile).parameters
    for settings in (PlanSettings, RunSettings):
        for name, parameter in inspect.signature(settings).parameters.items():
            assert given[name].default == parameter.default, name


def test_many_mixes_are_one_call(toy_library: ModelLibrary) -> None:
    """One name is asked about in every mix, mixes are written as for `predict`, and each answer is the same."""
    batch = slomo.predict_batch("lpm", [["nat:2"], "nat", {"nat": 1}, []], toy_library)

    alone = [slomo.predict("lpm", mix, toy_library) for mix in ("nat:2", "nat", "nat", [])]
    assert batch.throughput_mpps.tolist() == [each.throughput_mpps for each in alone]
    assert batch.verdict.tolist() == [str(each.verdict) for each in alone]
    with pytest.raises(SlomoError, match="2 targets for 1 mix,"):
        slomo.predict_batch(["lpm", "nat"], ["nat"], toy_library)


def _results(library: ModelLibrary, mixes: ProfileDataset) -> dict[str, Any]:
    placer = slomo.Placer(library, slomo.Cluster.uniform(library.machines[0], 1), slo_grid=0.0)
    predictor = slomo.Predictor(library)
    return {
        "prediction": slomo.predict("lpm", ["nat"], library),
        "unexplained": slomo.predict("lpm", ["nat"], library, explain=False),
        "batch": predictor.predict_batch(["lpm"] * 40, [["nat"], []] * 20),
        "server": solve_server(library, ["lpm", "nat"]),
        "evaluation": slomo.evaluate(library, mixes),
        "decision": placer.admit(slomo.Request("edge", "lpm", slomo.SLO(min_share=0.5))),
        "refusal": placer.admit(slomo.Request("more", "lpm", slomo.SLO(min_mpps=500.0))),
        "what-if": what_if(library, ["lpm", "nat"], slomo.load_machine(library.machines[0])),
    }


def test_results_show_themselves(
    toy_library: ModelLibrary, toy_profile: ProfileDataset, toy_mixes: ProfileDataset
) -> None:
    """Every result is a table in a notebook, a data frame, and a drawing on axes that are given and returned."""
    for name, value in (_results(toy_library, toy_mixes) | {"dataset": toy_profile}).items():
        axes = Figure().subplots()

        assert value._repr_html_().startswith("<table>"), name
        assert isinstance(value.to_frame(), pd.DataFrame), name
        assert len(value.to_frame()), name
        assert value.plot(axes) is axes, name
        assert axes.has_data(), name


def test_axes_are_made_where_none_are_given(toy_library: ModelLibrary) -> None:
    """Without axes a drawing makes its own, which a notebook shows at the end of a cell."""
    from matplotlib import pyplot

    axes = slomo.predict("lpm", ["nat"], toy_library, explain=False).plot()

    assert [text.get_text() for text in axes.get_yticklabels()] == ["lpm beside nat"]
    pyplot.close("all")


def test_progress_is_drawn_in_notebooks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel of Jupyter gets a bar by default; a script gets none, and who wants one says so."""
    assert listening(None, "measuring") is None
    assert listening(False, "measuring") is None
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]

    assert isinstance(listening(None, "measuring"), ProgressBar)
    solo = profile("l2fwd", plan="solo", jobs=1)
    assert "measuring" in capsys.readouterr().err
    slomo.train(solo, models=["mean"])
    assert "training" in capsys.readouterr().err


def test_training_tells_a_listener_each_model_and_the_last_step() -> None:
    """What all functions learn together is a step of its own."""
    told: list[object] = []
    listener = types.SimpleNamespace(start=told.append, advance=told.append, finish=lambda: told.append("end"))

    library = slomo.train(profile("l2fwd", plan="solo", jobs=1), models=["mean"], progress=listener)

    assert told == [2, told[1], library, "end"]
    assert isinstance(told[1], NFModel)
