"""Tree ensembles evaluated by numpy give the numbers of the libraries that grew them."""

import json

import numpy as np
import pytest
import xgboost
from sklearn.ensemble import GradientBoostingRegressor

from slomo.errors import ConfigurationError
from slomo.models.functions import trees
from slomo.models.functions.tree_formats import plain_from_dict, plain_to_dict, xgboost_from_json
from slomo.models.functions.tree_kernel import sum_of_trees
from slomo.models.functions.trees import TreeEnsemble, TreeNode, grow
from slomo.training.families.gradient_boosting import ensemble_of


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    rows = random.gamma(1.0, 30.0, (400, 6))
    rows[:, 3] = np.round(rows[:, 3])  # ties at thresholds
    return rows, 5.0 / (1.0 + 0.01 * rows[:, 0] + 0.02 * rows[:, 3]) + random.normal(0, 0.02, 400)


@pytest.fixture(scope="module")
def queries() -> np.ndarray:
    random = np.random.default_rng(1)
    rows = random.gamma(1.0, 40.0, (3000, 6))
    rows[:, 3] = np.round(rows[:, 3])
    return rows


@pytest.fixture(scope="module")
def published(table: tuple[np.ndarray, np.ndarray]) -> GradientBoostingRegressor:
    return GradientBoostingRegressor(random_state=0).fit(*table)


@pytest.fixture(scope="module")
def boosted(table: tuple[np.ndarray, np.ndarray]) -> xgboost.Booster:
    settings = {"max_depth": 4, "subsample": 0.7, "colsample_bytree": 0.7, "nthread": 1}
    rows = xgboost.DMatrix(table[0], label=table[1], nthread=1)
    return xgboost.train({**settings, "monotone_constraints": (-1,) * 6}, rows, num_boost_round=100)


def _source(model: xgboost.Booster) -> str:
    return bytes(model.save_raw("json")).decode()


def test_scikit_learn_numbers_to_the_bit(published: GradientBoostingRegressor, queries: np.ndarray) -> None:
    """Our evaluation of scikit-learn's trees equals its own predict in every bit."""
    np.testing.assert_array_equal(ensemble_of(published).predict(queries), published.predict(queries))


def test_plain_format_keeps_every_bit(published: GradientBoostingRegressor, queries: np.ndarray) -> None:
    """Trees written to JSON text and read back predict the same numbers."""
    data = json.loads(json.dumps(plain_to_dict(ensemble_of(published))))
    np.testing.assert_array_equal(plain_from_dict(data, 6).predict(queries), published.predict(queries))


def test_xgboost_numbers_to_the_bit(boosted: xgboost.Booster, queries: np.ndarray) -> None:
    """Our evaluation of xgboost's own JSON equals its own predict in every bit of float32."""
    own = boosted.inplace_predict(queries.astype(np.float32)).astype(float)
    np.testing.assert_array_equal(xgboost_from_json(_source(boosted), 6).predict(queries), own)


def test_xgboost_sends_missing_values_its_way(table: tuple[np.ndarray, np.ndarray], queries: np.ndarray) -> None:
    """NaN takes the branch that xgboost learned for it."""
    random = np.random.default_rng(2)
    rows = np.where(random.random(table[0].shape) < 0.2, np.nan, table[0])
    grown = xgboost.train({"max_depth": 4, "nthread": 1}, xgboost.DMatrix(rows, label=table[1]), num_boost_round=40)
    gaps = np.where(random.random(queries.shape) < 0.2, np.nan, queries)
    ours = xgboost_from_json(bytes(grown.save_raw("json")).decode(), 6)
    np.testing.assert_array_equal(ours.predict(gaps), grown.inplace_predict(gaps.astype(np.float32)).astype(float))


@pytest.mark.parametrize("kind", ["published", "boosted"])
def test_compiled_kernel_gives_the_same_numbers(kind: str, queries: np.ndarray, request: pytest.FixtureRequest) -> None:
    """The numba kernels for big batches and for few rows equal the numpy path in every bit."""
    pytest.importorskip("numba")
    model = request.getfixturevalue(kind)
    ensemble = ensemble_of(model) if kind == "published" else xgboost_from_json(_source(model), 6)
    rows = queries.astype(np.float32)
    numbers = ensemble._predict_chunk(rows)
    trees = ensemble.feature, ensemble.threshold, ensemble.leaf, ensemble.start
    np.testing.assert_array_equal(sum_of_trees(rows, *trees), numbers)
    np.testing.assert_array_equal(sum_of_trees(rows[:9], *trees), numbers[:9])


def test_one_row_alone_equals_the_same_row_in_a_batch(boosted: xgboost.Booster, queries: np.ndarray) -> None:
    """A prediction does not depend on what else is asked."""
    ensemble = xgboost_from_json(_source(boosted), 6)
    assert ensemble.predict(queries[7:8])[0] == ensemble.predict(queries)[7]


def test_uneven_trees_lay_out_right() -> None:
    """A leaf above the last level answers for everything below it."""
    uneven = TreeNode(
        [1, -1, 3, -1, -1], [2, -1, 4, -1, -1], [0, 0, 1, 0, 0], [0, 0, 5, 0, 0], [0, 1, 0, 2, 3], [True] * 5
    )
    grown = grow([uneven], start=0.0, n_features=2, dtype=np.float64)
    assert grown.predict(np.array([[-1.0, 9.0], [1.0, 5.0], [1.0, 6.0]])).tolist() == [1.0, 2.0, 3.0]


def test_no_rows_give_no_answers(published: GradientBoostingRegressor) -> None:
    """An empty batch is answered with an empty array."""
    assert ensemble_of(published).predict(np.empty((0, 6))).shape == (0,)


_LEAF = TreeNode([-1], [-1], [0], [0.0], [1.0], [True])
BROKEN = {
    "cycle": TreeNode([1, 0], [1, 0], [0, 0], [0.0, 0.0], [0.0, 0.0], [True, True]),
    "shared child": TreeNode([1, -1], [1, -1], [0, 0], [0.0, 0.0], [0.0, 1.0], [True, True]),
    "child out of range": TreeNode([7, -1], [1, -1], [0, 0], [0.0, 0.0], [0.0, 1.0], [True, True]),
    "negative child": TreeNode([-2, -1], [1, -1], [0, 0], [0.0, 0.0], [0.0, 1.0], [True, True]),
    "one child": TreeNode([1, -1], [-1, -1], [0, 0], [0.0, 0.0], [0.0, 1.0], [True, True]),
    "feature out of range": TreeNode([1, -1, -1], [2, -1, -1], [9, 0, 0], [0.0] * 3, [0.0] * 3, [True] * 3),
    "NaN threshold": TreeNode([1, -1, -1], [2, -1, -1], [0, 0, 0], [float("nan"), 0, 0], [0.0] * 3, [True] * 3),
    "infinite leaf": TreeNode([-1], [-1], [0], [0.0], [float("inf")], [True]),
    "no nodes": TreeNode([], [], [], [], [], []),
    "columns differ": TreeNode([-1], [-1], [0], [0.0], [], [True]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_tree_is_refused(name: str) -> None:
    """Damaged trees are refused with an error that names the tree."""
    with pytest.raises(ConfigurationError, match="tree 1"):
        grow([_LEAF, BROKEN[name]], start=0.0, n_features=1, dtype=np.float64)


def test_trees_too_deep_are_refused() -> None:
    """A chain of splits deeper than slomo's deepest tree is refused before it fills the memory."""
    size = 2 * trees.MAX_DEPTH + 5
    left = [i + 1 if i % 2 == 0 and i + 2 < size else -1 for i in range(size)]
    right = [i + 2 if i % 2 == 0 and i + 2 < size else -1 for i in range(size)]
    with pytest.raises(ConfigurationError, match="deeper"):
        grow(
            [TreeNode(left, right, [0] * size, [0.0] * size, [0.0] * size, [True] * size)],
            start=0.0,
            n_features=1,
            dtype=np.float64,
        )


def _edited(model: xgboost.Booster, edit: str) -> str:
    data = json.loads(_source(model))
    learner = data["learner"]
    tree = learner["gradient_booster"]["model"]["trees"][3]
    edits = {
        "cycle": lambda: tree["left_children"].__setitem__(0, 0),
        "out of range": lambda: tree["right_children"].__setitem__(0, 10**9),
        "huge index": lambda: tree["split_indices"].__setitem__(0, 10**30),
        "null threshold": lambda: tree["split_conditions"].__setitem__(0, None),
        "text threshold": lambda: tree["split_conditions"].__setitem__(0, "x"),
        "huge threshold": lambda: tree["split_conditions"].__setitem__(0, 1e300),
        "short column": lambda: tree["default_left"].pop(),
        "other objective": lambda: learner["objective"].__setitem__("name", "binary:logistic"),
        "other booster": lambda: learner["gradient_booster"].__setitem__("name", "dart"),
        "feature count": lambda: learner["learner_model_param"].__setitem__("num_feature", "99"),
        "base score": lambda: learner["learner_model_param"].__setitem__("base_score", "nan"),
        "no trees": lambda: learner["gradient_booster"].pop("model"),
        "categories": lambda: tree.__setitem__("categories", [1]),
    }
    edits[edit]()
    return json.dumps(data)


@pytest.mark.parametrize(
    "edit",
    [
        "cycle",
        "out of range",
        "huge index",
        "null threshold",
        "text threshold",
        "huge threshold",
        "short column",
        "other objective",
        "other booster",
        "feature count",
        "base score",
        "no trees",
        "categories",
    ],
)
def test_damaged_xgboost_models_are_refused(boosted: xgboost.Booster, edit: str) -> None:
    """Whatever was changed in xgboost's file, reading it ends in a ConfigurationError."""
    with pytest.raises(ConfigurationError):
        xgboost_from_json(_edited(boosted, edit), 6)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"learner": 1}', '{"learner": NaN}', "[" * 100_000])
def test_what_is_no_model_is_refused(content: str) -> None:
    """Texts that are no xgboost model end in a ConfigurationError, however deep they nest."""
    with pytest.raises(ConfigurationError):
        xgboost_from_json(content, 6)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("feature", [[0.5]]),
        ("feature", [[6]]),
        ("feature", [[-1]]),
        ("leaf", [[1.0]]),
        ("threshold", [[None]]),
        ("leaf", "x"),
        ("start", None),
    ],
)
def test_damaged_plain_trees_are_refused(name: str, value: object) -> None:
    """Columns that do not exist and tables that do not fit are refused."""
    data = {"start": 0.0, "depth": 1, "feature": [[0]], "threshold": [[1.0]], "leaf": [[1.0, 2.0]]}
    assert isinstance(plain_from_dict(data, 6), TreeEnsemble)
    with pytest.raises(ConfigurationError):
        plain_from_dict({**data, name: value}, 6)
