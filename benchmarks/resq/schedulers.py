"""What figures 8 and 9 of ResQ (NSDI'18) share: 200 SLO terms placed by a policy, judged by the simulator."""

import sys
from functools import cache
from pathlib import Path

import beside_paper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "placement"))

from resq import run  # type: ignore[attr-defined]  # of placement, not of this folder

from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import load_profiles
from slomo.placement.over_time.judgement import Judgement
from slomo.placement.problem.cluster import Cluster
from slomo.placement.workloads import resq_requests
from slomo.workflow.place import make_judge

TERMS = 200


def usage(doc: str) -> tuple[Path, int]:
    """Return the folder and the seed of the command line; print how to call and end without."""
    if len(sys.argv) not in (2, 3):
        print(doc, file=sys.stderr)
        sys.exit(2)
    return Path(sys.argv[1]), int((sys.argv[2:] or ["0"])[0])


class Compared:
    """Places the terms of a family by a policy, once, and has them judged."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.library = ModelLibrary.load(directory / "models")
        self.profiles = load_profiles(directory / "profiles.json")
        self.seed, self.judge = seed, make_judge()
        self.cluster = Cluster.uniform(beside_paper.RESQ, 4 * TERMS, cores_reserved=9, sockets=1)
        self.judged = cache(self._judged)

    def _judged(self, policy: str, family: str) -> Judgement:
        requests = resq_requests(family, TERMS, seed=self.seed)
        return run(policy, self.cluster, requests, self.library, self.profiles, self.judge, 0.95)[0]
