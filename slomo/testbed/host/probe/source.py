"""Provide this machine's reporters: they are calibrated on first use and loaded from disk later.

The user's cache stores a calibration per hardware and program. It is repeated when the sentinel detects that the usable
cache has changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slomo.errors import UnstableMeasurementError
from slomo.testbed.host.build import slomo_nf_binary
from slomo.testbed.host.machine.this_machine import cache_mib, fingerprint
from slomo.testbed.host.nf.definition import HostDefinition, host_definition
from slomo.testbed.host.probe.calibration import Calibration, calibration_path
from slomo.testbed.host.probe.competitions import Probe
from slomo.testbed.host.probe.procedure import CalibrationScope, calibrate
from slomo.testbed.host.settings import HostSettings
from slomo.vocabulary.network_function import NetworkFunction

#: a calibration made with less of the cores is used, but not stored
_SHARE_WORTH_KEEPING = 0.9
_TYPICAL_L2_MIB, _TYPICAL_LLC_MIB = 1.0, 64.0


@dataclass
class ProbeSource:
    """Creates or loads the probes of this machine."""

    #: Core of the reporters, core of the competitor.
    cores: Sequence[int]
    #: Number and length of windows.
    settings: HostSettings
    #: The synthetic competitor.
    synthetic: str | NetworkFunction = "synthetic"
    #: Calibration to use instead of this machine's.
    calibration: Calibration | None = None
    made: Probe | None = None

    def __call__(self) -> Probe:
        """Return the probes; calibrate them first if no calibration for this machine's present cache is stored."""
        if self.made is None:
            definition = host_definition(self.synthetic)
            checked = None if self.calibration is None else self._checked(self.calibration, definition)
            self.made = checked or self._loaded(definition) or self._calibrated(definition)
        return self.made

    def close(self) -> None:
        """End the probes' processes."""
        if self.made is not None:
            self.made.close()

    def _loaded(self, definition: HostDefinition) -> Probe | None:
        path = calibration_path(self._identity(definition))
        try:
            return self._checked(Calibration.load(path), definition) if path.exists() else None
        except UnstableMeasurementError:
            return None  # the stored calibration is for another cache

    def _checked(self, calibration: Calibration, definition: HostDefinition) -> Probe:
        """Return the probes after checking that the sentinel's speeds are those of the calibration."""
        probe = Probe(calibration, definition, self.settings, self.cores[0])
        try:
            probe.watch.require_same_cache(probe.watch.look())
        except BaseException:
            probe.close()
            raise
        return probe

    def _thorough(self) -> HostSettings:
        """Return settings with at least the default number and length of probe windows."""
        ours, usual = self.settings, HostSettings()
        pairs = max(ours.probe_pairs, usual.probe_pairs)
        return replace(ours, probe_pairs=pairs, probe_window_s=max(ours.probe_window_s, usual.probe_window_s))

    def _identity(self, definition: HostDefinition) -> str:
        return f"{fingerprint()}-{definition.fingerprint}-{slomo_nf_binary().name[-16:]}"

    def _calibrated(self, definition: HostDefinition) -> Probe:
        identity = self._identity(definition)
        l2_mib = (cache_mib(2) or (_TYPICAL_L2_MIB, 0))[0]
        largest_mib = (cache_mib(3) or (_TYPICAL_LLC_MIB, 0))[0]
        made = calibrate(definition, self.cores, self._thorough(), CalibrationScope(l2_mib, largest_mib, identity))
        if self.settings.minimum_cpu_share >= _SHARE_WORTH_KEEPING:
            made.save(calibration_path(identity))
        return Probe(made, definition, self.settings, self.cores[0])
