"""The controller's door for agents: POST /v1/report with a node's token, GET /healthz.

A Starlette application; web/serve.py runs it in a thread of the controller. It checks who speaks, how much and how
often, reads the report (web/letters.py) and hands it to `take`, which must only take it down. It never decides
anything about a node, and an unauthenticated caller learns nothing but that it is one.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sickbay.model import Report
from sickbay.ports import Clock
from sickbay.web.letters import Refused, read_report
from sickbay.web.limits import Complaints, Rates
from sickbay.web.tokens import SOURCE, Secrets, node_of

log = logging.getLogger(__name__)

MOST_BYTES = 256 * 1024
BODY_S = 10.0  # a report is a few kilobytes; whoever is still sending after this is not an agent
STANDBY_RETRY_S = 5

Take = Callable[[Report], str]  # -> "taken" | "early" | "old", as ReportedFleet.report

WORDS = {
    "taken": (200, "taken"),
    "old": (200, "a newer report of this node is here already"),
    "early": (202, "kept for a while: the platform does not show this node yet"),
}


@dataclass(frozen=True, slots=True)
class Desk:
    """What the ingest needs of the controller process around it."""

    take: Take
    leads: Callable[[], bool]
    secrets: Secrets
    cluster: str
    clock: Clock


class Ingest:
    def __init__(self, desk: Desk, rates: Rates | None = None, more: Sequence[Route] = ()) -> None:
        """`more`: further doors on the same address, such as web/outside.py's."""
        self._desk, self._more = desk, more
        self._rates = rates or Rates(desk.clock)
        self._complaints = Complaints(desk.clock)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/report", self.post_report, methods=["POST"]),
                Route("/healthz", self.healthz, methods=["GET"]),
                *self._more,
            ]
        )

    async def healthz(self, _: Request) -> Response:
        return answer(200, "leading" if self._desk.leads() else "standing by")

    async def post_report(self, request: Request) -> Response:
        try:
            status, words = await self._report(request)
            return answer(status, words)
        except Refused as refused:
            self._complaints.hear(refused.kind, f"{who(request)}: {refused.why}")
            return answer(refused.status, refused.why, refused.retry_s)
        except ClientDisconnect:
            return answer(400, "the connection was closed before the report was whole")
        except Exception:  # our own mistake must not look like the agent's: it keeps the report and tries again
            log.exception("a report could not be taken")
            return answer(500, "the controller could not take this report; it is not the agent's fault", 30)

    async def _report(self, request: Request) -> tuple[int, str]:
        node = self._speaker(request)
        if not self._desk.leads():
            raise Refused(503, "standing-by", "standing by: another controller leads", STANDBY_RETRY_S)
        wait = self._rates.wait(node)
        if wait:
            raise Refused(429, "too-often", f"{node} reports more often than any agent does", wait)
        body = await body_of(request)
        report = read_report(body, node, self._desk.cluster, self._desk.clock.now())
        return WORDS[self._desk.take(report)]

    def _speaker(self, request: Request) -> str:
        node = speaker(self._desk, request, "sickbay token NODE")
        if node.startswith(SOURCE):
            raise Refused(403, "other-source", f"this token is for {node!r}; a node's report needs the node's own")
        return node


def speaker(desk: Desk, request: Request, how: str) -> str:
    """Whose token this is. Before anything else: who is not known costs us one look at a header."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Refused(401, "no-token", f"no token: send `Authorization: Bearer TOKEN`; `{how}` makes one")
    name = node_of(desk.secrets.all(), desk.cluster, token.strip())
    if name is None:
        raise Refused(
            403, "wrong-token",
            f"this token was not made for cluster {desk.cluster!r}, or its secret is no longer accepted: make a new "
            f"one with `{how}`",
        )  # fmt: skip
    return name


async def body_of(request: Request, most: int = MOST_BYTES) -> bytes:
    """The whole body, bounded in size and time."""
    too_large = Refused(413, "too-large", f"a report may have {most // 1024} KiB at most: send the worst findings")
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and (len(length) > 9 or int(length) > most):
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_large
    except TimeoutError as late:
        raise Refused(408, "too-slow", f"the report was not whole after {BODY_S:.0f} s") from late
    return bytes(body)


def answer(status: int, words: str, retry_s: int = 0) -> Response:
    headers = {"Retry-After": str(retry_s)} if retry_s else {}
    if status in (401, 403):
        headers["WWW-Authenticate"] = "Bearer"
    if status in (408, 413):
        headers["Connection"] = "close"  # the rest of the body is not worth reading
    return Response(json.dumps({"status": words}) + "\n", status, headers, "application/json")


def who(request: Request) -> str:
    return request.client.host if request.client else "somebody"
