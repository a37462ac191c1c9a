"""Make a testbed from its name (simulated, host, replay, champsim or the name of a plug-in).

Every family of plug-ins has one lazy registry; a testbed is named by its alias or given as an instance, as
scikit-learn's scorers are.
"""

from collections.abc import Iterable
from pathlib import Path

from slomo.errors import UsageError
from slomo.plugins import load_plugin, require_name
from slomo.records.dataset import ProfileDataset
from slomo.records.run import RunRecord
from slomo.testbed.base import Testbed
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.network_function import NetworkFunction

#: Entry points under which other packages register testbeds.
GROUP = "slomo.testbeds"
#: Aliases of the testbeds that slomo ships.
TESTBEDS = ("simulated", "replay", "host", "champsim")


def make_testbed(
    testbed: str | Testbed = "simulated",
    machine: str | Machine = "e5-2620v4",
    network_functions: Iterable[NetworkFunction] = (),
    source: ProfileDataset | Iterable[RunRecord] | str | Path | None = None,
) -> Testbed:
    """Return the testbed of this name, or the given testbed itself.

    Parameters
    ----------
    testbed : str or Testbed
        Alias, or an instance that is returned as it is.
    machine : str or Machine
        Machine to simulate.
    network_functions : iterable of NetworkFunction
        Additional network functions, for the simulator.
    source : ProfileDataset, iterable of RunRecord or path, optional
        Runs to replay; a path names a dataset.

    Raises
    ------
    UnknownNameError
        For an unknown alias or machine.
    UsageError
        For testbed ``"replay"`` without `source`.

    Examples
    --------
    >>> make_testbed("simulated", "silver-4110").name
    'simulated'
    """
    if not isinstance(testbed, str):
        return testbed
    if require_name("testbed", testbed, TESTBEDS, GROUP):
        own: Testbed = load_plugin(GROUP, testbed)(machine, tuple(network_functions))
        return own
    if testbed == "simulated":
        from slomo.testbed.simulated import SimulatedTestbed

        return SimulatedTestbed(machine, network_functions)
    if testbed == "replay":
        return _replay(source)
    if testbed == "champsim":
        from slomo.testbed.champsim.testbed import ChampSimTestbed

        return ChampSimTestbed(machine if isinstance(machine, Machine) else None, network_functions)
    from slomo.testbed.host.testbed import HostTestbed

    return HostTestbed(machine, network_functions)


def machine_of(testbed: str | Testbed, machine: str | Machine, default: str) -> Machine:
    """Return the machine for which a testbed's experiments are planned and under which they are stored.

    `default`: name that means that no machine was requested. Then testbed `host` uses the machine on which it runs, and
    `champsim` the machine of its expected configuration.
    """
    if testbed == "host" and machine == default:
        from slomo.testbed.host.machine.this_machine import this_machine

        return this_machine()
    if testbed == "champsim" and machine == default:
        from slomo.testbed.champsim.testbed import champsim_machine

        return champsim_machine()
    return load_machine(machine)


def _replay(source: ProfileDataset | Iterable[RunRecord] | str | Path | None) -> Testbed:
    from slomo.testbed.replay import ReplayTestbed

    if source is None:
        raise UsageError(
            "testbed 'replay' has nothing to replay", hint="give a recorded dataset: --source FILE, source=FILE"
        )
    if isinstance(source, str | Path):
        from slomo.records.storage import load_dataset

        source = load_dataset(source)
    return ReplayTestbed(source)
