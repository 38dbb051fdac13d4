"""A client that posts as an agent does, and an ingest on a loopback port to post to."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sickbay.model import Report
from sickbay.ports import Clock
from sickbay.settings import IngestSettings
from sickbay.web.ingest import Desk, Ingest
from sickbay.web.limits import Rates
from sickbay.web.serve import Served
from sickbay.web.tokens import Secrets, make
from tests.controller.door import HandClock
from tests.web.letters import CLUSTER, NODE, SECRET, body

LOOPBACK = "127.0.0.1:0"


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    words: str
    retry_after: str | None


def post(port: int, raw: bytes, token: str | None, **headers: str) -> Answered:
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return ask(port, "POST", "/v1/report", raw, headers)


def ask(port: int, method: str, path: str, raw: bytes = b"", headers: dict[str, str] | None = None) -> Answered:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        client.request(method, path, raw or None, headers or {})
        answer = client.getresponse()
        text = answer.read().decode()
        words = json.loads(text)["status"] if text.startswith("{") else text
        return Answered(answer.status, words, answer.headers.get("Retry-After"))
    finally:
        client.close()


@dataclass
class Counter:
    """The other side of the door: what was taken, and whether anybody leads."""

    folder: Path
    clock: HandClock = field(default_factory=HandClock)
    says: str = "taken"
    leads: bool = True
    taken: list[Report] = field(default_factory=list)
    port: int = 0

    def take(self, report: Report) -> str:
        self.taken.append(report)
        return self.says

    def post(self, report: Report, node: str = NODE, secret: bytes = SECRET) -> Answered:
        return post(self.port, body(report), make(secret, CLUSTER, node))


@contextmanager
def opened(folder: Path, *, rates: Rates | None = None, cert: str = "", key: str = "") -> Iterator[Counter]:
    path = folder / "secrets"
    path.write_bytes(SECRET + b"\n")
    path.chmod(0o600)
    counter = Counter(folder)
    clock: Clock = counter.clock
    desk = Desk(counter.take, lambda: counter.leads, Secrets(str(path)), CLUSTER, clock)
    settings = IngestSettings(listen=LOOPBACK, cert_file=cert, key_file=key)
    served = Served(Ingest(desk, rates or Rates(clock)).app(), settings)
    counter.port = served.port
    try:
        yield counter
    finally:
        served.close()
