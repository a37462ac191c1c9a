"""Sensitivity models in the hands of others: the file that xgboost's trees are saved in, read by treelite."""

import json

import numpy as np
import pytest


def test_treelite_reads_the_file_and_answers_alike(toy_library, toy_models):
    """Within single precision of ours, in which xgboost keeps its trees; clipped and times solo throughput as told."""
    treelite = pytest.importorskip("treelite", reason="an example of the docs, not a dependency")
    (model, *_) = (each for each in toy_library.values() if "slomo-xgb" in each.sensitivity)
    ours = model.sensitivity["slomo-xgb"]
    key = model.workload.key
    (manifest,) = (
        path for path in toy_models.glob("*/manifest.json") if json.loads(path.read_text())["workload"] == key
    )
    trees = treelite.frontend.load_xgboost_model(str(manifest.parent / "slomo-xgb.xgboost.json"))
    described = json.loads((manifest.parent / "model.json").read_text())["sensitivity"]["slomo-xgb"]
    assert tuple(described["feature_names"]) == ours.feature_names
    draw = np.random.default_rng(0)
    most = np.array([model.applicability.to_dict()["high"][0]] * len(ours.feature_names))
    vectors = draw.uniform(0.0, 2.0 * most, (500, len(ours.feature_names))).astype(np.float32).astype(float)
    raw = np.asarray(treelite.gtil.predict(trees, vectors.astype(np.float32))).reshape(-1)
    theirs = described["solo_mpps"] * np.clip(raw, 0.0, 1.0) if described["response"].startswith("relative") else raw
    np.testing.assert_allclose(ours.predict_mpps(vectors), theirs, rtol=2e-5, atol=1e-6)
    assert np.ptp(theirs) > 0.0
