"""How far a gang is: the step its trainer names in its log, at an address of rank 0, or in an annotation.

Called by stop (has the job moved?) and by the reader (pulse.py). The job's annotation sickbay.dev/progress says how:
`log:<regex>` (first group: the step; the log of the lowest running rank), `http:<port><path>` (the same rank's pod,
JSON with "step" or "global_step", a Prometheus sample of that name, or a bare number), or `annotation` (the default:
sickbay.dev/step on the job or on any rank's pod). All of it is text of the job's owner: bounded, only ever a number.
"""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import dataclass
from functools import lru_cache

from sickbay.kube.objects import PodObject
from sickbay.platforms.kubernetes.gangs import logs, ranks, show, words
from sickbay.platforms.kubernetes.gangs.show import Gang
from sickbay.platforms.kubernetes.site import Site

HTTP_S, MOST_ANSWER = 2.0, 65_536
LOG_LINES = 200
MOST_PATTERN = 200
STEP_NAME = re.compile(r"\b(?:global_)?step(?:_total)?(?:\{[^}\n]{0,200}\})?\s+(\d{1,15})(?:\.0+)?\b")
PLAIN = re.compile(r"^\s*(\d{1,15})\s*$")


@dataclass(frozen=True, slots=True)
class Reading:
    step: int = -1  # -1: nothing was said
    saved: tuple[int, ...] = ()  # steps of complete checkpoints that the log names


def step_now(site: Site, gang: Gang) -> int:
    """The newest step that anybody can tell; 0 when nobody does."""
    return max(read(site, gang).step, show.step_of(gang))


def how(gang: Gang, key: str) -> str:
    """What the job's owner says about itself: on the job, or for bare gangs on a pod."""
    said = gang.object.metadata.annotation(key)
    return said or next((p.metadata.annotation(key) for p in gang.pods if p.metadata.annotation(key)), "")


def read(site: Site, gang: Gang) -> Reading:
    told, saves = how(gang, words.PROGRESS), how(gang, words.SAVES)
    pod = _speaker(gang)
    if pod is None or not (told or saves):
        return Reading(show.step_of(gang) or -1)
    lines: tuple[str, ...] = ()
    if told.startswith("log:") or saves.startswith("log:"):
        lines = logs.tail(site, pod, LOG_LINES)
    step = show.step_of(gang) or -1
    if told.startswith("log:"):
        step = max(_numbers(lines, told[4:]), default=-1)
    elif told.startswith("http:"):
        step = _step_in(fetch(pod, told[5:]))
    saved = tuple(dict.fromkeys(_numbers(lines, saves[4:]))) if saves.startswith("log:") else ()
    return Reading(step, saved[-words.MOST_CHECKPOINTS :])


def _speaker(gang: Gang) -> PodObject | None:
    """Rank 0; the lowest that runs, where rank 0 is gone."""
    newest = show.current(gang)
    return next((newest[rank] for rank in sorted(newest) if ranks.runs(newest[rank])), None)


def _numbers(lines: tuple[str, ...], pattern: str) -> list[int]:
    found = _compiled(pattern)
    if found is None:
        return []
    hits = (match for line in lines if (match := found.search(line)))
    return [n for m in hits if (n := words.number(m.group(1) if found.groups else m.group(0), -1)) >= 0]


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """None for what is no pattern, or one that could take for ever: nested repeats are not needed to find a number."""
    if len(pattern) > MOST_PATTERN or re.search(r"[+*}]\)?[+*{]|\([^)]*[+*][^)]*\)[+*{]", pattern):
        return None
    try:
        return re.compile(pattern)
    except re.error:
        return None


# --- HTTP -------------------------------------------------------------------------------------------------------------


def fetch(pod: PodObject, address: str, method: str = "GET") -> str | None:
    """`<port><path>` at the pod's own address: no other host can be named, redirects are not followed."""
    port, slash, path = address.partition("/")
    if not pod.status.pod_ip or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        return None
    connection = http.client.HTTPConnection(pod.status.pod_ip, int(port), timeout=HTTP_S)
    try:
        connection.request(method, f"{slash}{path}" or "/", headers={"User-Agent": "sickbay"})
        answer = connection.getresponse()
        said = answer.read(MOST_ANSWER)
        return said.decode("utf-8", "replace") if 200 <= answer.status < 300 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _step_in(text: str | None) -> int:
    if not text:
        return -1
    if plain := PLAIN.match(text):
        return int(plain.group(1))
    try:
        found = json.loads(text)
    except ValueError:
        return max((int(m.group(1)) for m in STEP_NAME.finditer(text)), default=-1)
    said = [found.get(name) for name in ("step", "global_step")] if isinstance(found, dict) else []
    return next((s for s in said if isinstance(s, int) and not isinstance(s, bool) and 0 <= s < words.MOST_STEP), -1)
