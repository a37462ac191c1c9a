"""Properties of a machine's resctrl: number of ways and classes, units of memory bandwidth, mount options.

Documentation/arch/x86/resctrl.rst of Linux; Intel uses percent or (mounted with mba_MBps) MB/s, AMD eighths of GB/s.
"""

from dataclasses import dataclass

from slomo.errors import RefusedSettingError
from slomo.host.resctrl_tree import ResctrlTree, parse_schemata
from slomo.vocabulary.way_masks import refusal

#: Highest value of AMD's MB and SMBA, which means unlimited.
UNLIMITED_AMD = 2048
_EIGHTHS = 8.0


@dataclass(frozen=True)
class ResctrlFacts:
    """Properties of one resctrl tree: ways, classes, units of bandwidth."""

    #: Mask of all ways, and least number of ways in a mask.
    full_mask: int
    min_bits: int
    #: Largest number of groups with masks (the root included), and number of RMIDs.
    classes: int
    monitors: int
    #: Whether code and data have separate masks (CDP), whether masks may have holes, whether DDIO ways can be set.
    cdp: bool
    sparse: bool
    io_alloc: bool
    #: ``"percent"``, ``"MB/s"`` or ``"GB/s"`` (in eighths).
    unit: str
    #: Granularity and least value of memory bandwidth, in the unit of the schemata file.
    step: int
    least: int
    #: Resource -> its domains.
    resources: dict[str, tuple[int, ...]]

    def cache_lines(self, data_mask: int | None, code_mask: int | None) -> dict[str, str]:
        """Check a tenant's masks, and return the schemata lines that set them, by resource."""
        if code_mask is not None and not self.cdp:
            raise RefusedSettingError(
                "a mask for code needs code and data prioritisation, which is off",
                hint="mount resctrl with -o cdp, or leave code_way_mask out",
            )
        if data_mask is None and code_mask is None:
            return {}
        names = {"L3DATA": data_mask, "L3CODE": code_mask or data_mask} if self.cdp else {"L3": data_mask}
        return {name: f"{self.checked(mask):x}" for name, mask in names.items() if mask is not None}

    def checked(self, mask: int) -> int:
        """Return `mask`; raise RefusedSettingError if it has ways that the cache lacks, too few ways, or gaps."""
        if why := refusal(mask, self.full_mask, "this machine", sparse=self.sparse, least=self.min_bits):
            raise RefusedSettingError(why, hint="0x3 is ways 0 and 1")
        return mask

    def bandwidth_value(self, amount: float, unit: str, resource: str = "MB") -> str:
        """Return the text to write for a memory bandwidth, in the form in which the kernel returns it when read.

        `resource`: ``"MB"``, or ``"SMBA"`` for CXL memory.
        """
        if resource not in self.resources:
            raise RefusedSettingError(f"resctrl does not offer control of {resource}", hint="see `slomo doctor`")
        text = f"{amount:g} {'%' if unit == 'percent' else unit}"
        if (unit == "percent") != (self.unit == "percent"):
            raise RefusedSettingError(
                f"memory bandwidth of {text}, but this machine takes {self.unit}",
                hint=f"give it in {self.unit}"
                + (" or mount resctrl with -o mba_MBps" if self.unit == "percent" else ""),
            )
        if self.unit == "GB/s":
            value = max(1, round(amount / (1000.0 if unit == "MB/s" else 1.0) * _EIGHTHS))
            if value > UNLIMITED_AMD:
                raise RefusedSettingError(
                    f"memory bandwidth of {text}, needed at most 256 GB/s", hint="leave the limit out"
                )
            return str(value)
        number = amount * (1000.0 if unit == "GB/s" else 1.0)
        if number < self.least:
            raise RefusedSettingError(
                f"memory bandwidth of {text}, needed {self.least} {self.unit} or more", hint="give a larger value"
            )
        return str(-(-round(number) // self.step) * self.step)


def read_facts(tree: ResctrlTree) -> ResctrlFacts:
    """Read a resctrl tree's properties."""
    tree.require("allocation (info/L3 or info/MB)", tree.can_allocate or tree.exists("info/MB"))
    settings = parse_schemata(tree.read("schemata"))
    cdp = tree.exists("info/L3CODE")
    cache = "info/L3CODE" if cdp else "info/L3"
    full = int(tree.read(f"{cache}/cbm_mask"), 16) if tree.can_allocate else 0
    counts = [tree.number(f"info/{name}/num_closids") for name in ("L3", "L3CODE", "L3DATA", "MB", "SMBA")]
    # derive the bandwidth's unit from a root group's unlimited value: 100 percent, 2048 eighths, 2^32 - 1 MB/s
    values = [int(text) for text in settings.get("MB", {}).values() if text.isdigit()]
    highest = max(values, default=100)
    unit = "percent" if highest <= 100 else "GB/s" if highest <= UNLIMITED_AMD else "MB/s"
    return ResctrlFacts(
        full_mask=full,
        min_bits=tree.number(f"{cache}/min_cbm_bits") or 1,
        classes=min((count for count in counts if count), default=1),
        monitors=tree.number("info/L3_MON/num_rmids") or 0,
        cdp=cdp,
        sparse=tree.number(f"{cache}/sparse_masks") == 1,
        io_alloc=tree.exists(f"{cache}/io_alloc") and tree.read(f"{cache}/io_alloc") != "not supported",
        unit=unit,
        step=tree.number("info/MB/bandwidth_gran") or 1 if unit == "percent" else 1,
        least=tree.number("info/MB/min_bandwidth") or 1,
        resources={name: tuple(domains) for name, domains in settings.items()},
    )


def rdt_capabilities(tree: ResctrlTree) -> dict[str, bool]:
    """Return the capabilities of a machine's resctrl tree under RMD's names; all false without a tree."""
    cdp, allocates = tree.exists("info/L3CODE"), tree.can_allocate
    return {
        "rdt": tree.mounted,
        "cqm": tree.exists("info/L3_MON"),
        "cdp": cdp,
        "cdp_on": cdp,
        "cat": allocates,
        "cat_on": allocates,
    }
