"""Whatever dcgmi printed, for `sickbay diagnose --kind dcgm`: a diagnostic, a health report, link counters, a last XID;
and the fabric manager's log, which lies beside them.

Each has its own reader; this file only tells them apart. Lists that judge nothing (discovery, modules, groups) say so.
It must never raise.
"""

from __future__ import annotations

import json
import re

from sickbay.checks import dcgm_diag, dcgm_health
from sickbay.checks.dcgm_errors import engine_dead
from sickbay.checks.kernel_lines import device
from sickbay.checks.signs import Sign, quote
from sickbay.model import Status

DIAG = re.compile(
    r'"DCGM (?:GPU )?Diagnostic"|"test_categories"|Successfully ran diagnostic'
    r"|^[|+]-{2,}\s+(?:Deployment|Hardware|Integration|Stress|Metadata)\s+-{2,}"
    r"|^\|[^|]{1,40}\| (?:Pass|Fail|Skip) - (?:All|GPUs?:)",
    re.MULTILINE,
)
_HEALTH = re.compile(
    r'"Overall Health"|^\| Overall Health\s+\||in health system \w+:|Health watches not enabled', re.MULTILINE
)
_LINKS = re.compile(r'"NVLINK Error Counts"|"(?:CRC|Replay|Recovery) (?:FLIT |Data )?Error"')
_LAST_XID = re.compile(r"^#\s?Entity\s+.*\bXIDER\b", re.MULTILINE)
_LISTS = re.compile(
    r"^\d+ GPUs? found\.|^\| (?:List Modules|GROUPS|FIELD GROUPS)\s|^#\s?Entity\s|Health monitor systems"
    r"|TestField \d+ test|^Error: unable to establish a connection to the specified host",
    re.MULTILINE | re.IGNORECASE,
)  # fmt: skip
_FABRIC = re.compile(r"^\[\w{3} \d\d \d{4} [\d:]{8}\] \[(?:INFO|ERROR|WARNING|CRITICAL)\] \[tid \d+\] ", re.MULTILINE)
SHAPES = (
    ("diag", DIAG), ("health", _HEALTH), ("links", _LINKS), ("xid", _LAST_XID), ("fabric", _FABRIC), ("list", _LISTS),
)  # fmt: skip


def shape_of(text: str) -> str:
    """Which of dcgmi's outputs this is; "" if none."""
    return next((shape for shape, pattern in SHAPES if pattern.search(text)), "")


def signs(text: str) -> list[Sign]:
    readers = {
        "health": _health, "links": link_signs, "xid": last_xids, "fabric": fabric_signs, "list": _listed,
    }  # fmt: skip
    return readers.get(shape_of(text), dcgm_diag.signs)(text)


def _health(text: str) -> list[Sign]:
    if "Health watches not enabled" in text:
        return [Sign("dcgm.watches-off", "DCGM watches nothing here", status=Status.UNKNOWN)]
    return dcgm_health.signs(text)


def _listed(text: str) -> list[Sign]:
    """A list judges nothing, and the words of a dead engine are no list."""
    if not engine_dead(None, text):
        return []
    said = "DCGM's host engine does not answer, so we cannot tell"
    return [Sign("dcgm.dead", said, evidence=quote(*text.splitlines()[:2]), status=Status.UNKNOWN)]


def link_signs(text: str) -> list[Sign]:
    """`dcgmi nvlink -e -j`: counters since the links came up. A count alone has no rate, so it is only watched."""
    try:
        found, _ = json.JSONDecoder().raw_decode(text, max(0, text.find("{")))
    except (ValueError, RecursionError):
        found = None
    body = found.get("body") if isinstance(found, dict) else None
    if not isinstance(body, dict):
        return [Sign("dcgm.unreadable", "no NVLink counters in this text", status=Status.UNKNOWN)]
    header = " ".join(str(line) for line in found.get("header") or [] if isinstance(line, str))[:200]
    gpu = re.search(r"\bGPU (\d{1,4})\b", header)
    told = [_link(str(name), link, gpu.group(1) if gpu else "") for name, link in list(body.items())[:512]]
    return [sign for sign in told if sign]


def _link(name: str, link: object, gpu: str) -> Sign | None:
    children = link.get("children") if isinstance(link, dict) else None
    counts = (
        {str(k): v.get("value") for k, v in children.items() if isinstance(v, dict)}
        if isinstance(children, dict)
        else {}
    )
    shown = [f"{kind}: {value}" for kind, value in counts.items() if str(value).isdecimal() and str(value).strip("0")]
    if not shown:
        return None
    where = f" of GPU {gpu}" if gpu else ""
    said = f"NVLink {name[:20]}{where} has counted errors: {', '.join(shown)[:120]}"
    traits = {"index": gpu} if gpu else {}
    return Sign("metrics.nvlink-errors", said, evidence=quote(*shown), status=Status.DEGRADED, traits=traits)


_XID_ROW = re.compile(r"^GPU (\d{1,4})\s+(\d{1,4})\s*$", re.MULTILINE)


def last_xids(text: str) -> list[Sign]:
    """`dcgmi dmon -e 230`: the last XID of each GPU, which may be old; the kernel log says when."""
    found = {(gpu, int(xid)) for gpu, xid in _XID_ROW.findall(text[: 1 << 20]) if 0 < int(xid) < 1000}
    return [
        Sign(f"xid.{xid}", f"the last XID of GPU {gpu} was {xid}; it may be old", evidence=quote(f"GPU {gpu} {xid}"),
             traits={"index": gpu, "sticky": "yes"})
        for gpu, xid in sorted(found)
    ]  # fmt: skip


_SWITCH = re.compile(
    r"detected NVSwitch (?P<fatal>fatal|non-fatal) error (?P<sxid>\d{4,5}) on .{0,60}?"
    r"pci bus id (?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})"
)


def fabric_signs(text: str) -> list[Sign]:
    """The fabric manager repeats the SXIDs it hears of; the kernel log has them too, with their order."""
    told: dict[tuple[str, str], Sign] = {}
    for found in _SWITCH.finditer(text):
        code, where = f"sxid.{int(found['sxid'])}", device(found["pci"])
        if len(told) < 256 and (code, where) not in told:
            said = f"the fabric manager reports NVSwitch error {found['sxid']} ({found['fatal']})"
            traits = {"fatal": found["fatal"].replace("-", "")}
            told[code, where] = Sign(code, said, where, quote(found.group()), traits=traits)
    return list(told.values())
