"""Serve an application in a thread of this process until told to stop. asyncio lives in web/ only.

Called by controller/app.py. A busy port or a bad certificate is said at the start, in a sentence, not in the thread.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from sickbay import atomic
from sickbay.errors import UserError
from sickbay.settings import IngestSettings
from sickbay.web.limits import Complaints
from sickbay.web.threshold import Leave, Threshold

log = logging.getLogger(__name__)

START_S = 20.0
STOP_S = 2
REQUEST_S = 15.0  # a whole request, from the connection or its first byte to the answer: a report is a few kilobytes
KEEP_S = 5.0  # a connection at rest; an agent whose connection was closed opens another
LARGEST_HEAD = 16 * 1024


class Impatient(H11Protocol):
    """uvicorn has no time limit for a head, the first or a later one, nor for a body that nobody wants: whoever sends a
    byte now and then stays for ever, and a thousand of them lock agents out. Here every request has one."""

    leave: Leave = staticmethod(lambda: None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._busy = True
        self._ends = self.loop.call_later(REQUEST_S, self._end)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ends.cancel()
        self.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._busy:
            self._within(REQUEST_S, busy=True)
        super().data_received(data)
        self._rest()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._rest()

    def _rest(self) -> None:
        """Answered, the whole request read, and nothing of the next one here."""
        at_rest = self.conn.our_state is h11.IDLE and self.conn.their_state is h11.IDLE
        if self._busy and at_rest and self.cycle is not None and not self.conn.trailing_data[0]:
            self._within(KEEP_S, busy=False)

    def _within(self, seconds: float, *, busy: bool) -> None:
        self._ends.cancel()
        self._busy = busy
        self._ends = self.loop.call_later(seconds, self._end)

    def _end(self) -> None:
        self.transport.abort()


def bounded_head(app: ASGIApp) -> ASGIApp:
    """h11 bounds only a head that comes in pieces: one that arrives whole is let through, however large."""

    async def bounded(scope: Scope, receive: Receive, send: Send) -> None:
        head = sum(len(name) + len(value) + 4 for name, value in scope.get("headers", ()))
        if head + len(scope.get("raw_path", b"")) + len(scope.get("query_string", b"")) > LARGEST_HEAD:
            words = f"the head of a request may have {LARGEST_HEAD // 1024} KiB at most\n"
            await PlainTextResponse(words, 431, {"Connection": "close"})(scope, receive, send)
        else:
            await app(scope, receive, send)

    return bounded


class _Server(uvicorn.Server):
    """uvicorn's, behind a threshold of ours: it would accept whoever comes until no file is left."""

    def __init__(self, config: uvicorn.Config, per_source: int) -> None:
        super().__init__(config)
        self._per_source = per_source
        self._threshold: Threshold | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        await self.lifespan.startup()
        asyncio.get_running_loop().set_exception_handler(self._trouble)
        self.servers, self._complaints = [], Complaints(_Monotonic())
        self._threshold = Threshold(sockets[0], self._make, self.config.ssl, self._per_source, self._complaints)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._threshold is not None:
            self._threshold.close()
        await super().shutdown(sockets)

    def _make(self, leave: Leave) -> Impatient:
        made = Impatient(self.config, self.server_state, self.lifespan.state, asyncio.get_running_loop())
        made.leave = leave
        return made

    def _trouble(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._complaints.hear("loop", str(context.get("exception") or context.get("message")))


class _Monotonic:
    """ports.Clock, for how often something is said."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class Served:
    """A running server. `port` is the one it got; `close` waits for what is under way, for two seconds at most."""

    def __init__(self, app: Starlette, settings: IngestSettings) -> None:
        self._server = _Server(_config(app, settings), settings.connections_per_source)
        self._socket = _listening(settings.listen)
        self.port = int(self._socket.getsockname()[1])
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # a stranger's bad request is no event of ours
        self._thread = threading.Thread(target=self._run, name="ingest", daemon=True)
        self._thread.start()
        self._wait_until_it_answers()
        log.info("ingest listen=%s port=%d tls=%s", settings.listen, self.port, bool(settings.cert_file))

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=STOP_S + 5.0)
        self._socket.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except Exception:
            log.exception("the ingest stopped; agents keep their reports until the controller is started again")

    def _wait_until_it_answers(self) -> None:
        until = time.monotonic() + START_S
        while not self._server.started and self._thread.is_alive() and time.monotonic() < until:
            time.sleep(0.005)
        if not self._server.started:
            raise UserError("the ingest did not start; the log says why")


def _config(app: Starlette, settings: IngestSettings) -> uvicorn.Config:
    certificate: dict[str, Any] = {}
    if settings.cert_file:
        certificate = {"ssl_certfile": settings.cert_file, "ssl_keyfile": settings.key_file or None}
    try:
        for file in filter(None, certificate.values()):
            atomic.prove(Path(file))
        config = uvicorn.Config(
            bounded_head(app), loop="asyncio", http=Impatient, ws="none", lifespan="off", log_config=None,
            access_log=False, proxy_headers=False, server_header=False, timeout_keep_alive=int(KEEP_S),
            timeout_graceful_shutdown=STOP_S, h11_max_incomplete_event_size=LARGEST_HEAD, **certificate,
        )  # fmt: skip
        config.load()
    except (OSError, ssl.SSLError) as error:
        what = f"ingest.cert_file {settings.cert_file} and ingest.key_file {settings.key_file or '(not set)'}"
        raise UserError(f"{what} cannot be used: {error}; both must be PEM files that this user may read") from error
    return config


def _listening(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UserError(f'ingest.listen = {listen!r}: an address and a port, such as "0.0.0.0:8443"')
    try:
        made = socket.create_server((host, int(port)), family=_family(host), backlog=1_024)
    except OSError as error:
        raise UserError(f"ingest.listen = {listen!r}: {error.strerror or error}; is another one listening?") from error
    made.setblocking(False)
    return made


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
