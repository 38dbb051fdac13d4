"""What the agent knows of its own node: type, profile, GPU map, versions. Kept on disk, looked up again after a boot.

agent/collector refreshes it between cycles through `identity`. It must never replace the GPU map by one in which a GPU
is missing: that is when its name is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sickbay import __version__, atomic
from sickbay.agent.report import Self
from sickbay.catalog import Catalog, Profile
from sickbay.catalog.profile_file import read_profiles
from sickbay.checks import nvml
from sickbay.checks.nvidia_smi import inventory
from sickbay.errors import SickbayError
from sickbay.identity import gpu_map
from sickbay.identity.machine import instance_type, profile_of
from sickbay.identity.versions import versions
from sickbay.model import Finding, Status
from sickbay.ports import Completed, Host
from sickbay.settings import AgentSettings

log = logging.getLogger(__name__)

MAP = "gpu-map.json"
INVENTORIES = (("nvidia-smi", "-q"), nvml.COMMAND)  # what check 0 asks, one way or the other


class Overheard:
    """A Host that also remembers what nvidia-smi last printed, so that the map costs no call of its own."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.name = host.name
        self.smi = ""

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        done = self._host.run(argv, timeout_s)
        if done.code == 0 and tuple(argv) in INVENTORIES:
            self.smi = done.stdout
        return done

    def read(self, path: str) -> str | None:
        return self._host.read(path)

    def names(self, path: str) -> tuple[str, ...] | None:
        return self._host.names(path)

    def fetch(
        self, url: str, timeout_s: float, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> str | None:
        return self._host.fetch(url, timeout_s, method, headers)

    def kernel_lines(self, cursor: str) -> tuple[list[str], str]:
        return self._host.kernel_lines(cursor)

    def boot_id(self) -> str:
        return self._host.boot_id()


@dataclass(slots=True)
class Knowledge:
    folder: Path
    host: Overheard
    catalog: Catalog
    map: gpu_map.GpuMap = field(default_factory=gpu_map.GpuMap)
    profile: Profile | None = None
    type: str = ""
    why: str = ""  # who names the type, or why nobody does
    factors: dict[str, str] = field(default_factory=dict)
    trouble: str = ""  # what is wrong with agent.profiles_file
    gpus: bool = False  # is this a node with GPUs, as far as anything tells?
    label: str = ""  # the type as the node object's label has it
    instance: str = ""  # the machine's name at its provider
    stale: bool = False  # somebody told us more since the last look

    def remember(self) -> None:
        """From disk, before anything is asked: a GPU that is lost right now still has its name."""
        self.map = gpu_map.load(self.folder / MAP)
        self.gpus = bool(self.map.gpus)

    def look(self, settings: AgentSettings) -> None:
        """Ask the machine who it is."""
        self.stale = False
        own = self._own_profiles(settings.profiles_file)
        self.type, self.why = instance_type(self.host, settings.instance_type, self.label, profiles=own)
        self.profile = profile_of(self.type, self.catalog, own) if self.type else None
        told = {"agent": __version__, "instance-type": self.type}
        self.factors = {**versions(self.host), **{name: value for name, value in told.items() if value}}
        driver = self.host.read("/proc/driver/nvidia/version") is not None
        self.gpus = driver or bool(self.map.gpus) or (self.profile is not None and self.profile.gpus > 0)

    def _own_profiles(self, file: str) -> tuple[Profile, ...]:
        self.trouble = ""
        if not file:
            return ()
        try:
            with atomic.opened(Path(file)) as own:
                return read_profiles(own.read().decode("utf-8"), file)
        except (SickbayError, OSError, UnicodeDecodeError) as error:
            self.trouble = str(error)
            return ()

    def told(self, label: str, instance: str) -> None:
        """What the platform knows of this node: its type where the metadata is out of reach (originals 002.12 #3)."""
        self.stale = self.stale or (label != self.label and self.type != label)
        self.label, self.instance = label, instance

    def learn(self, findings: Sequence[Finding], boot_id: str, at: float) -> None:
        """After a cycle: a whole and healthy list of GPUs becomes the map."""
        smi = [finding for finding in findings if finding.check == "nvidia-smi"]
        if not smi or any(_unwell(finding) for finding in smi):
            return
        expected = self.profile.gpus or None if self.profile is not None else None
        seen = inventory(self.host.smi)
        renewed = gpu_map.renewed(self.map, seen, expected, boot_id, at)
        changed = renewed.gpus != self.map.gpus or renewed.boot_id != self.map.boot_id
        self.map, self.host.smi = renewed, ""
        if changed and renewed.gpus:
            try:
                gpu_map.save(self.folder / MAP, renewed)
            except OSError as error:
                log.error("the GPU map cannot be written: %s", error)

    def who(self, before: Self) -> Self:
        return replace(before, gpus=self.map.gpus, factors=self.factors, instance=self.instance or before.instance)


def _unwell(finding: Finding) -> bool:
    """A node whose type nobody knows cannot be counted, but it has its GPUs."""
    blind = finding.status is Status.UNKNOWN and not finding.code.startswith("profile.")
    return blind or finding.status is Status.FAILED
