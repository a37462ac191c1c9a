"""Turn mixes into runs beside composed competition, so that families without an equilibrium learn from them."""

import numpy as np

from slomo.equilibrium.competition import mix_features
from slomo.models.library import ModelLibrary
from slomo.records.dataset import ProfileDataset
from slomo.records.rows import competitors_from_cell


def mixes_as_runs(library: ModelLibrary, dataset: ProfileDataset) -> ProfileDataset:
    """Return a dataset whose mixes are runs beside composed competition, so that families without an equilibrium learn.

    Parameters
    ----------
    library : ModelLibrary
        Models of the dataset's network functions; their solo vectors are composed.
    dataset : ProfileDataset
        Profile with mixes; those with other tenants are left out.
    """
    models = [library[key] for key in library]
    number = {model.workload.key: place for place, model in enumerate(models)}
    frame = dataset.frame.copy()
    known = {  # text of the competitors -> their numbers
        text: [number[each.key] for each in tenants]
        for text in set(frame["competitors"])
        if (tenants := competitors_from_cell(str(text))) and all(each.key in number for each in tenants)
    }
    mixes = frame.index[(frame["plan"] == "mix") & frame["competitors"].isin(known)]
    listed = [known[text] for text in frame.loc[mixes, "competitors"]]
    members = np.array([each + [-1] * (max(map(len, listed)) - len(each)) for each in listed])
    runs = frame[frame["plan"] == "pressure"].dropna(axis="columns", how="all")
    columns = [name for name in runs.columns if name.startswith("competition.")]
    names = [name.removeprefix("competition.") for name in columns]
    frame.loc[mixes, columns] = mix_features(models, members, names, capacities=models[0].capacities)
    frame.loc[mixes, "plan"] = "pressure"
    return ProfileDataset(frame[frame["plan"] != "mix"].reset_index(drop=True), dataset.environment)
