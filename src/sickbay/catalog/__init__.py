"""Knowledge as data: what each code means, which fault it is, how it is treated. Every row cites its source.

`load()` reads the TOML files beside this one, once. Core and checks get a Catalog; nobody edits one at run time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from sickbay.catalog.blame import BlameTable
from sickbay.errors import ConfigError
from sickbay.model import Fault, Rung, Severity, Verb, When


@dataclass(frozen=True, slots=True)
class Variant:
    """A reading of a code that depends on the finding's traits: XID 154 on its hex code, 64 on its text."""

    name: str  # "0x1": listed among the codes as "xid.154.0x1"
    traits: Mapping[str, str]  # trait -> pattern; all must be found
    code: Code

    def fits(self, traits: Mapping[str, str]) -> bool:
        return all(re.search(pattern, traits.get(trait, "")) is not None for trait, pattern in self.traits.items())


@dataclass(frozen=True, slots=True)
class Code:
    """One row of xid.toml, sxid.toml, dcgm.toml or signs.toml: a code an instrument prints, and the fault it names."""

    code: str  # "xid.79", "sxid.20034", "dcgm.DCGM_FR_ROW_REMAP_FAILURE", "smi.gpu-lost", "kernel.pcie-aer-fatal"
    name: str
    fault: str  # a row of faults.toml
    meaning: str  # in our own words
    action: str  # what we do, in our own words
    source: str
    severity: Severity | None = None  # overrides the fault's
    when: When | None = None
    vendor_action: str = ""  # NVIDIA's bucket, as a fact
    title: str = ""  # a few words for people
    confirm: int = 0  # overrides the fault's; 0 = the fault's
    variants: tuple[Variant, ...] = ()  # first that fits wins
    number: int = 0  # in the vendor's own list, where it has one and prints it
    reading: str = ""  # what the instrument's report of it is worth: "" as it says, "blind" nothing, "setting" a hint


@dataclass(frozen=True, slots=True)
class Profile:
    """An instance type: what a healthy node of it has. A count or minimum of 0 is not judged."""

    type: str
    gpus: int
    gpu_model: str
    efas: int
    nvlink: str  # "" none, else the width, e.g. "NV18"; "NV": some, of a width nobody told us
    reboot_s: float
    power_cycle_s: float
    replace_s: float
    source: str
    nccl_local_min_gbs: float = 0.0  # all-reduce bus bandwidth within the node
    efa_loopback_min_gbps: float = 0.0
    nvmes: int = 0  # local NVMe drives, without network volumes

    def timeout_s(self, rung: Rung) -> float:
        """How long this rung may take here: machines of some types need longer to come back."""
        own = {Verb.REBOOT: self.reboot_s, Verb.POWER_CYCLE: self.power_cycle_s, Verb.REPLACE: self.replace_s}
        return own.get(rung.verb, rung.timeout_s)


@dataclass(frozen=True, slots=True)
class NvlinkSub:
    """A row of the NVLink5 decode table (XID 144-150). A pattern has 32 characters, highest bit first, '-' = either."""

    xid: int
    unit: str
    pattern_v1: str  # intrInfo bits, drivers before R575
    pattern_v2: str  # from R575
    error_status: int  # ANY_STATUS: does not matter
    severity: Severity
    fatal: bool
    meaning: str
    source: str = ""


ANY_STATUS = -1

# What an overridden code is treated as when its own fault has no rung of that severity.
_GENERIC = {Severity.RESET: "reset-required", Severity.REBOOT: "reboot-required", Severity.REPLACE: "replace-required"}
_FIRST_RUNG = {Severity.RESET: Verb.RESET_GPU, Severity.REBOOT: Verb.REBOOT, Severity.REPLACE: Verb.REPLACE}


# A code that outsiders name has no ladder of its own: once a person gives it a severity it is this fault, which
# cordons and verifies.
_OUTSIDE = {"alert": "reported-alert", "webhook": "reported-finding"}


@dataclass(frozen=True, slots=True)
class Catalog:
    faults: Mapping[str, Fault]
    codes: Mapping[str, Code]
    ladders: Mapping[str, tuple[Rung, ...]]
    profiles: Mapping[str, Profile]
    nvlink5: tuple[NvlinkSub, ...] = ()
    version: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)
    actions: Mapping[str, str] = field(default_factory=dict)  # fault -> what Sickbay does about it, in words
    blame: BlameTable = field(default_factory=BlameTable)  # what a job's log says about who is to blame

    def code(self, code: str) -> Code | None:
        """Its row; of a family that others name (condition.<Type>) the row `<family>.any`, where there is one."""
        return self.codes.get(code) or self.codes.get(f"{code.partition('.')[0]}.any")

    def fault_of(self, code: str) -> Fault | None:
        row = self.code(code)
        return self.faults.get(row.fault) if row else None

    def refined(self, code: str, traits: Mapping[str, str]) -> Code | None:
        """The row for a code as these traits read it (text, hex, gpu_model, mig, uvm); None if there is no row."""
        row = self.code(code)
        if row is None:
            return None
        return next((variant.code for variant in row.variants if variant.fits(traits)), row)

    def with_overrides(self, severity_overrides: Mapping[str, str]) -> Catalog:
        """This catalog with some codes' severities set by a person. ConfigError names an unknown code or severity."""
        changed = {code: self._overridden(code, word) for code, word in severity_overrides.items()}
        return replace(self, codes={**self.codes, **changed}) if changed else self

    def _overridden(self, code: str, word: str) -> Code:
        key = f"severity_overrides.{code}"
        row = self.code(code)
        if row is None:
            raise ConfigError("settings", key, "no such code in the catalog", "see `sickbay explain` for known codes")
        try:
            severity = Severity[word.upper()]
        except KeyError:
            right = "one of " + ", ".join(Severity.__members__)
            raise ConfigError("settings", key, f"{word!r} is not a severity", right) from None
        # The person's word is final: readings by trait no longer apply.
        outside = _OUTSIDE.get(code.partition(".")[0], "") if severity > Severity.MONITOR else ""
        fault = outside or self._fault_for(row.fault, severity)
        return replace(row, code=code, severity=severity, fault=fault, variants=())

    def _fault_for(self, fault: str, severity: Severity) -> str:
        """The fault itself if its ladder has such a rung; else a generic one that has. MONITOR is never treated."""
        if severity <= Severity.MONITOR:
            return fault if not self.faults[fault].treats else "inform"
        verbs = {rung.verb for rung in self.ladders.get(self.faults[fault].ladder, ())}
        return fault if _FIRST_RUNG[severity] in verbs else _GENERIC[severity]


@lru_cache(maxsize=1)
def load() -> Catalog:
    """The catalog that ships with this package, read and checked once per process."""
    from sickbay.catalog.reading import read_catalog  # here, because it imports the rows above

    return read_catalog()
