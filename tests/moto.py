"""Amazon's APIs on loopback: moto's server, one for the whole run, and a front before it that can be made to fail.

`moto_server` and `amazon` are fixtures for the tests that need EC2, Auto Scaling, SNS or SQS. The server is a process
of its own that ends when the run's first process does. moto knows no throttling, no lost answers and no capacity
reservations: `Front` adds these, and counts what was called.
"""

from __future__ import annotations

import fcntl
import http.client
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

ROOT = Path(__file__).parents[1]
START_S = 60.0
REGION = "us-west-2"
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": REGION}

Reply = tuple[int, bytes]


def ec2_error(code: str, message: str = "said the front", status: int = 400) -> Reply:
    body = f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>"
    return status, body.encode()


def asg_error(code: str, message: str = "said the front", status: int = 400) -> Reply:
    body = f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
    return status, body.encode()


@dataclass
class Front:
    """Passes on to moto, unless told otherwise. `replies`: action -> what is said instead. `mute`: actions that are
    carried out and never answered. `edits`: action -> a change of moto's answer."""

    to: int
    port: int = 0
    calls: list[dict[str, str]] = field(default_factory=list)
    replies: dict[str, Reply] = field(default_factory=dict)
    mute: set[str] = field(default_factory=set)
    edits: dict[str, Callable[[bytes], bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def count(self, action: str) -> int:
        return sum(call.get("Action") == action for call in self.calls)

    def reset(self) -> None:
        self.calls.clear()
        self.replies.clear()
        self.mute.clear()
        self.edits.clear()

    def reserve(
        self, state: str, end: str, lifecycle: str = "capacity-block", name: str = "cr-0123456789abcdef0"
    ) -> None:
        """Instances run in this reservation from now on. The format is EC2's; moto has none."""
        inside = (
            f"<capacityReservationId>{name}</capacityReservationId><instanceLifecycle>{lifecycle}</instanceLifecycle>"
        )
        self.edits["DescribeInstances"] = lambda said: re.sub(
            rb"(<instanceId>i-[0-9a-f]+</instanceId>)", rb"\1" + inside.encode(), said
        )
        ends = f"<endDate>{end}</endDate>" if end else ""
        self.replies["DescribeCapacityReservations"] = (
            200,
            f"<DescribeCapacityReservationsResponse><capacityReservationSet><item><capacityReservationId>{name}"
            f"</capacityReservationId><state>{state}</state>{ends}</item></capacityReservationSet>"
            "</DescribeCapacityReservationsResponse>".encode(),
        )


def _handler(front: Front) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            asked = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
            action = asked.get("Action", self.headers.get("X-Amz-Target", "").rpartition(".")[2])
            front.calls.append({**asked, "Action": action})
            if action in front.replies:
                self._say(*front.replies[action])
                return
            status, said, kind = self._pass_on(body)
            if action in front.mute:
                self.close_connection = True
                return
            self._say(status, front.edits[action](said) if action in front.edits else said, kind)

        def _pass_on(self, body: bytes) -> tuple[int, bytes, str]:
            client = http.client.HTTPConnection("127.0.0.1", front.to, timeout=120)
            try:
                client.request("POST", self.path, body, dict(self.headers.items()))
                answer = client.getresponse()
                return answer.status, answer.read(), answer.headers.get("Content-Type", "text/xml")
            finally:
                client.close()

        def _say(self, status: int, said: bytes, kind: str = "text/xml") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: Any) -> None:
            return

    return Handler


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> int:
    """The port of the run's moto."""
    base = tmp_path_factory.getbasetemp()
    shared = "PYTEST_XDIST_WORKER" in os.environ
    folder, owner = (base.parent, os.getppid()) if shared else (base, os.getpid())
    said = folder / "moto.port"
    with (folder / "moto.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            argv = [sys.executable, "-m", "tests.moto", str(owner), str(said)]
            env = {**os.environ, **KEYS, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
            with (folder / "moto.log").open("wb") as log:
                subprocess.run(argv, cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True, check=True)
            _wait(said, folder / "moto.log")
    return int(said.read_text())


def _wait(said: Path, log: Path) -> None:
    until = time.monotonic() + START_S
    while not said.exists():
        if time.monotonic() > until:
            raise RuntimeError(f"moto did not start: {log.read_text()[-2000:]}")
        time.sleep(0.05)


@pytest.fixture(scope="session")
def _front(moto_server: int) -> Iterator[Front]:
    front = Front(moto_server)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(front))
    server.daemon_threads = True
    front.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield front
    server.shutdown()
    server.server_close()


@pytest.fixture
def amazon(_front: Front, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    """A front that fails nothing yet, and credentials that only moto takes."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    _front.reset()
    yield _front
    _front.reset()


def main(owner: int, said: Path) -> None:
    """Serve until the owner is gone, in a process that is nobody's child."""
    if os.fork():
        os._exit(0)
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    partial = said.with_suffix(".partial")
    partial.write_text(str(port))
    partial.replace(said)
    while Path(f"/proc/{owner}").exists():
        time.sleep(0.5)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
