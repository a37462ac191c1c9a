"""Tables of co-locations by name: layouts that are read, and faults told by line and column."""

import itertools
import json

import pytest

from slomo.cli.main import main
from slomo.errors import ConfigurationError
from slomo.records.importing.named import import_pairs
from slomo.records.storage import save_dataset


def read(folder, text, **told):
    """Import a table of pairs."""
    (folder / "pairs.csv").write_text(text)
    return import_pairs(folder / "pairs.csv", "rack", **told)


def test_rates_of_all_or_of_one(tmp_path):
    """The n-th rate is the n-th name's; with one rate a name may be a list; blanks are left out."""
    both = read(tmp_path, "a,b,c,mpps_a,mpps_b,mpps_c\nx,y,z,1,2,3\nx,y,,4,,\n")
    assert list(zip(both.frame["nf"], both.throughput.tolist(), strict=True)) == [
        ("x", 1.0), ("y", 2.0), ("z", 3.0), ("x", 4.0),
    ]  # fmt: skip
    assert [len(both.competitors(row)) for row in range(4)] == [2, 2, 2, 1]
    one = read(tmp_path, "target beside kpps\nx y+x 500\ny - 900\n".replace("y+x", "2xy").replace("-", "none"))
    assert one.throughput.tolist() == [0.5, 0.9]
    assert list(one.frame["plan"]) == ["mix", "solo"]


def test_published_pairs_are_read_by_column(tmp_path):
    """Columns of numbers that are no rates are left out by naming those that are."""
    table = "name1 name2 expected1 expected2 actual1 actual2\n600.a 602.b 0.9 0.8 0.95 0.85\n600.a 605.c 1 1 0.9 0.8\n"
    pairs = read(tmp_path, table, unit="share", rates=("actual1", "actual2"))
    assert pairs.throughput.tolist() == [0.95, 0.85, 0.9, 0.8]
    assert pairs.solo_mpps(str(pairs.frame["target"].iloc[0])) == 1.0


@pytest.mark.parametrize(
    ("text", "told", "message"),
    [
        ("a,b,mpps\nx,y,0\n", {}, "line 2, column 'mpps': got '0', needed a rate above 0"),
        ("a,b,mpps\nx,y,5000\n", {}, "line 2, column 'mpps': got '5000', that is 5000 Mpps, and no port"),
        ("a,b,mpps\nx,y,1\nx,z,fast\nx,w,2\n", {}, "line 3, column 'mpps': got 'fast'"),
        ("a,b,mpps\n,y,1\nx,y,2\n", {}, "line 2, column 'a': got '', needed the name"),
        ("u,v\n1,2\n", {}, "no column holds names"),
        ("a,mpps\nx,1\ny,2\n", {}, "none of 2 rows names two functions"),
        ("a,b,p,q,r\nx,y,1,2,3\n", {}, "2 columns of names, and 3 of rates: p, q, r"),
        ("a,b,mpps,users\nx,y,1,2\n", {}, "rates of different units: mpps in Mpps, users in no unit"),
        ("a,b,p,q_mpps,r_kpps\nx,y,1,2,3\n", {"rates": ["q_mpps", "r_kpps"]}, "q_mpps in Mpps, r_kpps in kpps"),
        ("a,b,rate\nx,y,0.9\nx,z,0.8\n", {}, "Mpps, or shares of solo"),
        (
            "a,b,share\nx,y,96.8\n",
            {},
            "got '96.8', that is 96.8 times solo throughput, needed at most 1.5; is it in %?",
        ),
        ("a,b,pct\nx,y,168\n", {}, "got '168', that is 1.68 times solo throughput, needed at most 1.5"),
        (
            "a;b;mpps\nx;;5,0\nx;y;4,1\n",
            {},
            "line 2, column 'mpps': got '5,0', needed a rate above 0\nhint: write a decimal",
        ),
        ("a,b,mpps\nx,1e300,1\nx,y,1\nx,z,2\n", {}, "line 2, column 'b': got '1e300', needed the name"),
        ("a,b,mpps\nx,5000 x y,1\n", {}, "line 2, column 'b': got '5000 x y', '5000 x y' names more than the 1024 "),
        ("a,b,mpps\nx,y,1\n", {"rates": ("perf",)}, "has no column 'perf'"),
        ("a,b,mpps\nx,y,1\n", {"unit": "furlong"}, "unit 'furlong'"),
    ],
)
def test_faults_are_told_by_line_and_column(tmp_path, text, told, message):
    """What is wrong, where, and what was got."""
    with pytest.raises(ConfigurationError) as fault:
        read(tmp_path, text, **told)
    assert message in str(fault.value)


def test_a_unit_is_read_asked_for_or_offered(tmp_path):
    """`_pct` is %; without a unit a warning says Mpps; a number too large names the unit to tell."""
    assert read(tmp_path, "a,b,a_pct,b_pct\nx,y,96,90\n").throughput.tolist() == pytest.approx([0.96, 0.9])
    with pytest.warns(UserWarning, match="rates are read as Mpps; --unit tells another"):
        read(tmp_path, "a,b,rate\nx,y,4\n")
    for text, hint in (("a,b,share\nx,y,96\n", "--unit %"), ("a,b,mpps\nx,y,2500\n", "--unit kpps")):
        with pytest.raises(ConfigurationError) as fault:
            read(tmp_path, text)
        assert hint in str(fault.value.hint)


def test_a_function_far_faster_beside_others_is_warned_of(tmp_path):
    """The warning names line, function and both rates."""
    with pytest.warns(UserWarning, match=r"line 3: 'y' has 0.9 Mpps beside others and 0.307 Mpps alone"):
        read(tmp_path, "a,b,a_kpps,b_kpps\ny,,307,\nx,y,500,900\n")


@pytest.mark.parametrize("separator", [";", "\t"])
def test_the_header_tells_the_separator(tmp_path, separator):
    """Tables with semicolons or tabs are read as those with commas, with or without a byte order mark."""
    text = "a,b,a_mpps,b_mpps\nx,y,4,3\nx,,5,\n"
    mark = "\ufeff" if separator == ";" else ""
    assert read(tmp_path, mark + text.replace(",", separator)).throughput.tolist() == [4.0, 3.0, 5.0]


def test_a_rate_above_the_line_rate_of_a_shipped_machine_is_refused(tmp_path):
    """The ports of a machine that slomo ships are known; those of another are not."""
    read(tmp_path, "a,b,mpps\nx,y,100\n")
    with pytest.raises(
        ConfigurationError, match="line 2, column 'mpps': got '100', that is 100 Mpps, and a port of e5-"
    ):
        import_pairs(tmp_path / "pairs.csv", "e5-2620v4")


def test_runs_that_contradict_each_other_are_warned_of(tmp_path):
    """Two runs of one function, alone or beside the same others, that differ by more than half."""
    text = "a,b,a_mpps,b_mpps\nx,,5,\nx,y,4,3\ny,x,2.9,0.4\nx,,50,\ny,y,1,2.5\n"
    with (
        pytest.warns(UserWarning, match="line 2: 'x' has 5 Mpps alone, in line 5 50: which one"),
        pytest.warns(UserWarning, match="line 4: 'x' has 0.4 Mpps beside the same others, in line 3 4: which"),
    ):
        read(tmp_path, text)


def test_the_command_line_needs_a_machine(tmp_path, capsys):
    """Without a mapping FILE holds co-locations by name, which do not say where they were measured."""
    (tmp_path / "pairs.csv").write_text("a,b,mpps\nx,y,4\nx,,5\n")
    line = ["dataset", "import", str(tmp_path / "pairs.csv"), "--out", str(tmp_path / "pairs.parquet")]
    assert main(line) == 2
    assert "--machine" in capsys.readouterr().err
    assert main([*line, "--machine", "rack"]) == 0


def test_shares_are_told_wherever_a_rate_is_shown(tmp_path, capsys):
    """`dataset show` and `predict` say that a table of shares has no Mpps."""
    out, models = str(tmp_path / "pairs.parquet"), str(tmp_path / "models")
    pairs = [f"{a},{b},0.9,0.8" for a, b in itertools.combinations_with_replacement("vwxyz", 2)]
    save_dataset(read(tmp_path, "\n".join(["a,b,a_share,b_share", *pairs]) + "\n"), out)
    for line in (["dataset", "show", out], ["train", out, "--models", models],
                 ["predict", "--target", "v", "--with", "w", "--models", models]):  # fmt: skip
        assert main(line) == 0
        assert ("shares: 1 Mpps stands for" in capsys.readouterr().err) is (line[0] != "train")


def test_each_machine_of_a_dataset_has_rows_of_its_own(tmp_path, capsys):
    """`dataset show` never mixes the throughputs of one function on two machines."""
    for machine, mpps in (("a", 4.0), ("b", 6.0)):
        (tmp_path / "pairs.csv").write_text(f"one,other,one_mpps,other_mpps\nx,,{mpps},\nx,y,{mpps / 2},1\n")
        save_dataset(import_pairs(tmp_path / "pairs.csv", machine), tmp_path / f"{machine}.parquet")
    both = [str(tmp_path / f"{name}.parquet") for name in ("a", "b", "both")]
    assert main(["dataset", "merge", *both[:2], "--out", both[2]]) == 0
    assert main(["dataset", "show", both[2], "--json"]) == 0
    targets = json.loads(capsys.readouterr().out)["targets"]
    shown = [(each["machine"], each["solo_mpps"]) for each in targets if each["target"].startswith("x@")]
    assert shown == [("a", 4.0), ("b", 6.0)]
