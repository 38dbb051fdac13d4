"""Knowledge as data: what each code means, which fault it is, how it is treated. Every row cites its source.

`load()` reads the TOML files beside this one, once. Core and checks get a Catalog; nobody edits one at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sickbay.model import Fault, Rung, Severity, When


@dataclass(frozen=True, slots=True)
class Code:
    """One row of xid.toml, sxid.toml, dcgm.toml or signs.toml: a code some instrument prints, and the fault it names."""

    code: str  # "xid.79", "sxid.20034", "dcgm.DCGM_FR_ROW_REMAP_FAILURE", "smi.gpu-lost", "kernel.pcie-aer-fatal"
    name: str
    fault: str  # a row of faults.toml
    meaning: str  # in our own words
    action: str  # what we do, in our own words
    source: str
    severity: Severity | None = None  # overrides the fault's
    when: When | None = None
    vendor_action: str = ""  # NVIDIA's bucket, as a fact


@dataclass(frozen=True, slots=True)
class Profile:
    """An instance type: what a healthy node of it has."""

    type: str
    gpus: int
    gpu_model: str
    efas: int
    nvlink: str  # "" none, else the width, e.g. "NV18"
    reboot_s: float
    power_cycle_s: float
    replace_s: float
    source: str


@dataclass(frozen=True, slots=True)
class NvlinkSub:
    """A row of the NVLink5 decode table (XID 144-150)."""

    xid: int
    unit: str
    pattern_v1: str  # intrInfo bits, drivers before R575
    pattern_v2: str  # from R575
    error_status: int
    severity: Severity
    fatal: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class Catalog:
    faults: Mapping[str, Fault]
    codes: Mapping[str, Code]
    ladders: Mapping[str, tuple[Rung, ...]]
    profiles: Mapping[str, Profile]
    nvlink5: tuple[NvlinkSub, ...] = ()
    version: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    def code(self, code: str) -> Code | None:
        return self.codes.get(code)

    def fault_of(self, code: str) -> Fault | None:
        row = self.codes.get(code)
        return self.faults.get(row.fault) if row else None
