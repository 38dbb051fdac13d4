"""Light check `dcgm-health`: what DCGM's background watches saw (`dcgmi health -c -j`), and whether DCGM is there.

`checks/run` and the agent's cycle call it; `sickbay diagnose` uses `signs` on a file. It can add a finding and never
take one away: DCGM says "Healthy" of a GPU that waits for a reset (DCGM issue 263), so "Healthy" clears nothing. It
says "Failure" of NVLinks that a PCIe card without a bridge does not have (NVSentinel pull request 1481): no fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sickbay.checks.dcgm_diag import lost, silence
from sickbay.checks.dcgm_errors import UNNAMED, errors, named
from sickbay.checks.dcgm_health_report import Incident, incidents
from sickbay.checks.dcgm_text import gpu_of
from sickbay.checks.kernel_lines import clean
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote
from sickbay.model import Status
from sickbay.ports import Host

TIMEOUT_S = 60.0  # it hangs for more than 45 s in a storm of ECC errors (NVSentinel issue 1748)
QUICK_S = 10.0
MOST_SIGNS = 64
_WATCHES_OFF = re.compile(r"health watches not enabled", re.IGNORECASE)
_PCIE_CARD = re.compile(r"^GPU (\d+): .{0,80}?\bPCIE\b", re.IGNORECASE | re.MULTILINE)


def collect(host: Host, ask: Ask) -> Reading:
    """The report. Watches that are off are switched on, so that the next look sees something."""
    done = host.run(("dcgmi", "health", "-c", "-j"), TIMEOUT_S)
    outputs = {}
    if _WATCHES_OFF.search(f"{done.stdout}\n{done.stderr}"):
        outputs["watches"] = host.run(("dcgmi", "health", "-s", "a"), QUICK_S)
    if "nvlink" in done.stdout.lower():
        outputs["cards"] = host.run(("nvidia-smi", "-L"), QUICK_S)
    return Reading(done, outputs=outputs)


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    done = reading.done
    if blind := lost(done):
        return [blind]
    if _WATCHES_OFF.search(f"{done.stdout}\n{done.stderr}"):
        on = reading.outputs.get("watches")
        now = "they are on from now" if on and on.code == 0 else "switch them on with `dcgmi health -s a`"
        return [Sign("dcgm.watches-off", f"DCGM watches nothing here; {now}", status=Status.UNKNOWN)]
    found = incidents(done.stdout)
    if found is None:
        return [silence(done)]
    cards = reading.outputs.get("cards")
    return _signs(found, ask, _without_links(ask, cards.stdout if cards else ""))


def signs(text: str) -> list[Sign]:
    """A health report in a file: nobody knows what kind of node it is from."""
    found = incidents(text)
    if found is None:
        return [Sign("dcgm.unreadable", "no DCGM health report in this text", status=Status.UNKNOWN)]
    return _signs(found, Ask(), frozenset())


def engine(host: Host) -> list[Sign]:
    """Is DCGM there at all? Silence when it is. Cheap enough for every cycle of an agent."""
    done = host.run(("dcgmi", "discovery", "-l"), QUICK_S)
    if done.code == 0 or done.timed_out:
        return []
    return [lost(done) or silence(done)]


_ANY = frozenset({"*"})


def _without_links(ask: Ask, cards: str) -> frozenset[str]:
    """GPUs that have no NVLink to lose: all, where the profile says so, else those that are PCIe cards by name."""
    if ask.profile is not None and not ask.profile.nvlink:
        return _ANY
    return frozenset(_PCIE_CARD.findall(cards[:65_536]))


def _signs(found: Iterable[Incident], ask: Ask, linkless: frozenset[str]) -> list[Sign]:
    told = [_sign(incident, ask) for incident in found if not _no_link_to_lose(incident, linkless)]
    return told[:MOST_SIGNS]


def _no_link_to_lose(incident: Incident, linkless: frozenset[str]) -> bool:
    return "nvlink" in incident.system.lower() and bool(linkless & {"*", incident.entity})


def _sign(incident: Incident, ask: Ask) -> Sign:
    text = " ".join(incident.messages)
    name = named(text)
    gpu = incident.entity if incident.group == "GPU" else gpu_of(text)
    where = f" on GPU {gpu}" if gpu else f" on {incident.group} {incident.entity}" if incident.entity else ""
    reason = f"DCGM health, {incident.system or 'overall'}{where}: {clean(text, 160) or incident.health}"
    shown = quote(text, f"{incident.system}: {incident.health}", most=2)
    traits = {"index": gpu, "system": incident.system[:40]}
    code = "dcgm.health-incident" if name == UNNAMED else f"dcgm.{name}"
    return Sign(
        code, reason, evidence=shown, status=_status(incident, name, ask), traits={k: v for k, v in traits.items() if v}
    )


def _status(incident: Incident, name: str, ask: Ask) -> Status | None:
    """None: as bad as the catalog says; only for a failure that has a name, on a node whose kind is known."""
    if name == UNNAMED or incident.health.lower() != "failure":
        return Status.DEGRADED
    if name in errors().blind:
        return Status.UNKNOWN
    links = "nvlink" in incident.system.lower() or "NVLINK" in name
    return Status.DEGRADED if links and (ask.young or ask.profile is None) else None


CHECK = Check("dcgm-health", None, collect, judge)
