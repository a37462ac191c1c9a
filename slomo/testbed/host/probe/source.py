"""The probes of this machine, made when first needed: calibrated once per machine and program, then loaded.

A calibration is a fact about hardware and program; it is kept in the user's cache and named by both.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slomo.testbed.host.build import slomo_nf_binary
from slomo.testbed.host.definition import HostDefinition, host_definition
from slomo.testbed.host.pressure import Probe
from slomo.testbed.host.probe.calibration import Calibration, calibration_path
from slomo.testbed.host.probe.procedure import calibrate
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.this_machine import cache_mib, fingerprint
from slomo.vocabulary.network_function import NetworkFunction

_TYPICAL_L2_MIB, _TYPICAL_LLC_MIB = 1.0, 64.0


@dataclass
class ProbeSource:
    """Makes the probes of this machine.

    Parameters
    ----------
    cores : sequence of int
        Core of the reporters, core of the competitor.
    settings : HostSettings
        Windows and pairs.
    synthetic : str or NetworkFunction
        The synthetic competitor.
    calibration : Calibration, optional
        To use instead of this machine's.
    """

    cores: Sequence[int]
    settings: HostSettings
    synthetic: str | NetworkFunction = "synthetic"
    calibration: Calibration | None = None
    made: Probe | None = None

    def __call__(self) -> Probe:
        """Return the probes, calibrating them first where that was never done."""
        if self.made is None:
            definition = host_definition(self.synthetic)
            self.made = Probe(self.calibration or self._calibrated(definition), definition, self.settings)
        return self.made

    def _calibrated(self, definition: HostDefinition) -> Calibration:
        identity = f"{fingerprint()}-{definition.fingerprint}-{slomo_nf_binary().name[-16:]}"
        path = calibration_path(identity)
        if path.exists():
            return Calibration.load(path)
        l2_mib = (cache_mib(2) or (_TYPICAL_L2_MIB, 0))[0]
        largest_mib = (cache_mib(3) or (_TYPICAL_LLC_MIB, 0))[0]
        made = calibrate(
            definition, self.cores, self.settings, l2_mib=l2_mib, largest_llc_mib=largest_mib, identity=identity
        )
        made.save(path)
        return made
