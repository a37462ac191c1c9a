"""The probes of this machine, made when first needed: calibrated once per machine and program, then loaded.

A calibration is a fact about hardware and program; it is kept in the user's cache and named by both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slomo.testbed.host.build import slomo_nf_binary
from slomo.testbed.host.machine.this_machine import cache_mib, fingerprint
from slomo.testbed.host.nf.definition import HostDefinition, host_definition
from slomo.testbed.host.probe.calibration import Calibration, calibration_path
from slomo.testbed.host.probe.competitions import Probe
from slomo.testbed.host.probe.procedure import calibrate
from slomo.testbed.host.settings import HostSettings
from slomo.vocabulary.network_function import NetworkFunction

#: a calibration made with less of the cores is used, but not kept
_SHARE_WORTH_KEEPING = 0.9
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
            self.made = Probe(self.saved() or self._calibrated(definition), definition, self.settings)
        return self.made

    def _thorough(self) -> HostSettings:
        """Return settings as good as the usual ones, whatever haste a run is in."""
        usual = HostSettings()
        pairs, window_s = self.settings.probe_pairs, self.settings.probe_window_s
        return replace(
            self.settings,
            probe_pairs=max(pairs, usual.probe_pairs),
            probe_window_s=max(window_s, usual.probe_window_s),
        )

    def saved(self) -> Calibration | None:
        """Return the calibration that was given, or that an earlier campaign kept; None where one is to be made."""
        if self.made is not None or self.calibration is not None:
            return self.made.calibration if self.made else self.calibration
        path = calibration_path(self._identity(host_definition(self.synthetic)))
        return Calibration.load(path) if path.exists() else None

    def _identity(self, definition: HostDefinition) -> str:
        return f"{fingerprint()}-{definition.fingerprint}-{slomo_nf_binary().name[-16:]}"

    def _calibrated(self, definition: HostDefinition) -> Calibration:
        identity = self._identity(definition)
        l2_mib = (cache_mib(2) or (_TYPICAL_L2_MIB, 0))[0]
        largest_mib = (cache_mib(3) or (_TYPICAL_LLC_MIB, 0))[0]
        made = calibrate(
            definition, self.cores, self._thorough(), l2_mib=l2_mib, largest_llc_mib=largest_mib, identity=identity
        )
        if self.settings.minimum_cpu_share >= _SHARE_WORTH_KEEPING:
            made.save(calibration_path(identity))
        return made
