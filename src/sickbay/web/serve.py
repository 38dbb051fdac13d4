"""Serve an application in a thread of this process until told to stop. asyncio lives here and in web/ingest.py only.

Called by controller/app.py. A busy port or a bad certificate is said at the start, in a sentence, not in the thread.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from sickbay.errors import UserError
from sickbay.settings import IngestSettings

log = logging.getLogger(__name__)

START_S = 20.0
STOP_S = 2
MOST_CONNECTIONS = 2_048
FIRST_WORD_S = 10.0  # a connection that has not sent a whole request head by then is closed
LARGEST_HEAD = 16 * 1024


class Impatient(H11Protocol):
    """uvicorn waits for ever for a first request, so a few thousand idle connections would lock agents out."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._hurry = self.loop.call_later(FIRST_WORD_S, self._end_if_mute)

    def connection_lost(self, exc: Exception | None) -> None:
        self._hurry.cancel()
        super().connection_lost(exc)

    def _end_if_mute(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


class Served:
    """A running server. `port` is the one it got; `close` waits for what is under way, for two seconds at most."""

    def __init__(self, app: Starlette, settings: IngestSettings) -> None:
        self._server = uvicorn.Server(_config(app, settings))
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
        config = uvicorn.Config(
            app, loop="asyncio", http=Impatient, ws="none", lifespan="off", log_config=None, access_log=False,
            proxy_headers=False, server_header=False, limit_concurrency=MOST_CONNECTIONS, timeout_keep_alive=15,
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
