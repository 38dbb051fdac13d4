"""What outsiders say of nodes: POST /v1/alerts (Alertmanager's webhook) and POST /v1/findings (anybody's).

Doors beside the agents' on the same address, each with a token bound to its source (`sickbay token
source:alertmanager`, `sickbay token source:webhook`). What a source says stands until it takes it back; the same again
is nothing new. Findings enter through ReportedFleet.tell, apart from the agents' reports, and the source's ceiling
bounds what they may cause.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sickbay.model import Finding, Place, Severity, Status
from sickbay.ports import Clock
from sickbay.web.alertmanager import LONGEST_NAME, MOST_ALERTS, Said, line, pci_of, read_alerts
from sickbay.web.ingest import STANDBY_RETRY_S, Desk, answer, body_of, speaker, who
from sickbay.web.letters import Refused
from sickbay.web.limits import Complaints, Rates
from sickbay.web.tokens import SOURCE

log = logging.getLogger(__name__)

MOST_BYTES = 4 * 1024 * 1024  # two thousand alerts of two kilobytes
MOST_STANDING = 64  # of one source about one node
MOST_NODES = 20_000
Read = Callable[[bytes], list[Said]]


class Fleet(Protocol):
    """As ReportedFleet, which is not imported: adapters do not know each other."""

    def knows(self, node: str) -> bool: ...

    def tell(self, node: str, source: str, findings: Sequence[Finding]) -> str: ...


# --- the generic door's letter ----------------------------------------------------------------------------------------


class Word(msgspec.Struct):
    """One finding of a webhook: `name` tells it from others on that node; status OK takes it back."""

    node: str
    name: str
    status: str = "FAILED"
    reason: str = ""
    device: str = ""
    xid: int = 0


class Words(msgspec.Struct):
    findings: list[Word]


_words = msgspec.json.Decoder(Words)


def read_words(body: bytes) -> list[Said]:
    try:
        words = _words.decode(body).findings
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        wanted = '{"findings": [{"node": "gpu-17", "name": "fan", "status": "FAILED", "reason": "it stands still"}]}'
        raise Refused(400, "unreadable", f"these are no findings: {str(error)[:200]}; send {wanted}") from error
    if len(words) > MOST_ALERTS:
        raise Refused(413, "too-large", f"more than {MOST_ALERTS} findings at once")
    return [_word(word) for word in words]


def _word(word: Word) -> Said:
    if word.status not in ("FAILED", "OK"):
        raise Refused(400, "unreadable", f"status {word.status[:20]!r}: FAILED, or OK to take it back")
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in word.name[:LONGEST_NAME])
    code = f"xid.{word.xid}" if 0 < word.xid < 10_000 else f"webhook.{name or 'unnamed'}"
    reason = line(word.reason or f"{name} was reported")
    return Said((word.node[:253],), f"{code} {word.device[:64]}", word.status == "FAILED", code, reason,
                evidence=(reason,), device=pci_of(word.device))  # fmt: skip


# --- what stands ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Standing:
    since: str
    finding: Finding


class Board:
    """What one source says of each node now. Bounded; forgotten at a restart, as the source repeats what stands."""

    def __init__(self, source: str, check: str, fleet: Fleet, clock: Clock) -> None:
        self._source, self._check, self._fleet, self._clock = source, check, fleet, clock
        self._nodes: OrderedDict[str, dict[str, Standing]] = OrderedDict()
        self._number = 0

    def hear(self, said: Sequence[Said]) -> tuple[int, int]:
        """(how many were about nodes of ours, how many about none)."""
        touched: dict[str, None] = {}
        strangers = 0
        for one in said:
            node = next((name for name in one.nodes if self._fleet.knows(name)), "")
            if not node:
                strangers += 1
                continue
            self._note(node, one)
            touched[node] = None
        for node in touched:
            self._tell(node)
        return len(said) - strangers, strangers

    def _note(self, node: str, one: Said) -> None:
        standing = self._nodes.setdefault(node, {})
        self._nodes.move_to_end(node)
        if len(self._nodes) > MOST_NODES:
            self._nodes.popitem(last=False)
        known = standing.get(one.mark)
        if not one.stands:
            standing.pop(one.mark, None)
        elif (known is None or known.since != one.since) and (known is not None or len(standing) < MOST_STANDING):
            standing[one.mark] = Standing(one.since, self._finding(node, one))

    def _tell(self, node: str) -> None:
        """All that stands; when nothing does any more, that is one passed observation. One alert that is over must not
        clear another that still fires."""
        standing = [one.finding for one in self._nodes[node].values()]
        if standing:
            self._fleet.tell(node, self._source, standing)
            return
        over = Said((node,), "", False, "", f"Nothing that {self._source} reported of this node stands any more")
        done = self._finding(node, over)
        self._fleet.tell(node, self._source, (replace(done, status=Status.OK, severity=Severity.NONE, evidence=()),))

    def _finding(self, node: str, one: Said) -> Finding:
        """Numbered so that numbers only grow, also over a restart: milliseconds of our own clock."""
        now = self._clock.now()
        self._number = max(self._number + 1, int(now * 1000))
        return Finding(
            id=f"/{self._number}", source=self._source, check=self._check, place=Place(node, one.device),
            status=Status.FAILED, code=one.code, reason=one.reason, evidence=one.evidence, severity=Severity.MONITOR,
            at=one.at or now, received_at=now, traits=one.traits,
        )  # fmt: skip


# --- the doors --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Door:
    source: str
    check: str
    path: str
    read: Read


DOORS = (
    Door("alertmanager", "alert", "/v1/alerts", read_alerts),
    Door("webhook", "webhook", "/v1/findings", read_words),
)


def outside_routes(desk: Desk, fleet: Fleet, rates: Rates | None = None) -> list[Route]:
    """For Ingest(desk, more=…)."""
    rates, complaints = rates or Rates(desk.clock), Complaints(desk.clock)
    return [Route(door.path, _served(desk, door, fleet, rates, complaints), methods=["POST"]) for door in DOORS]


def _served(
    desk: Desk, door: Door, fleet: Fleet, rates: Rates, complaints: Complaints
) -> Callable[[Request], Awaitable[Response]]:
    board = Board(door.source, door.check, fleet, desk.clock)

    async def post(request: Request) -> Response:
        try:
            _admit(desk, door, rates, request)
            ours, strangers = board.hear(door.read(await body_of(request, MOST_BYTES)))
            if strangers:
                complaints.hear(f"{door.source}-stranger", f"{strangers} findings name no node of ours")
            return answer(200, f"{ours} taken" + (f", {strangers} about no node of ours" if strangers else ""))
        except Refused as refused:
            complaints.hear(refused.kind, f"{who(request)}: {refused.why}")
            return answer(refused.status, refused.why, refused.retry_s)
        except ClientDisconnect:
            return answer(400, "the connection was closed before the message was whole")
        except Exception:  # our own mistake: the sender tries again
            log.exception("what %s said could not be taken", door.source)
            return answer(500, "the controller could not take this; it is not the sender's fault", 30)

    return post


def _admit(desk: Desk, door: Door, rates: Rates, request: Request) -> None:
    name = f"{SOURCE}{door.source}"
    speaks = speaker(desk, request, f"sickbay token {name}")
    if speaks != name:
        raise Refused(403, "other-source", f"this token is for {speaks!r}; here speaks {name!r}")
    if not desk.leads():
        raise Refused(503, "standing-by", "standing by: another controller leads", STANDBY_RETRY_S)
    if wait := rates.wait(name):
        raise Refused(429, "too-often", f"{door.source} speaks more often than we listen", wait)
