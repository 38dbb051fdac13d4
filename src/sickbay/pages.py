"""A few plain pages over HTTP for machines: /metrics and probes. Shared by the agent and the controller.

Whoever serves gives a table path -> page; a page is asked on each request and answers at once. Bounded: at most AT_ONCE
requests at a time and OF_ONE of one source, each shown out after PATIENCE_S in all, however often it says a byte, and
after ANSWER_S with its answer. Who comes for a place too many of one source takes the place of that source's oldest;
when all places are taken, the one that has dawdled longest over its request gives up its place, else the one that has
read its answer longest, once it had READ_S. It must never hold a lock of those it reports on.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from sickbay import __version__
from sickbay.errors import UserError
from sickbay.source import source_of

log = logging.getLogger(__name__)

AT_ONCE = 8
PATIENCE_S = 5.0  # for a request
ANSWER_S = 20.0  # for request and answer: a page of 3 MB at 1.5 Mbit/s; Prometheus itself gives up after 10 s
OF_ONE = 3  # places that one source may have at a time: several scrapers behind one address, or the API server's proxy
READ_S = 5.0  # for an answer, while somebody waits for the place
LOOK_S = 0.5  # how often we see whose time is up
MAKE_ROOM_S = 0.5
TYPE = "text/plain; version=0.0.4; charset=utf-8"

Page = Callable[[], tuple[int, bytes]]
More = Callable[[str], tuple[int, bytes] | None]  # of paths that are in no table; None: there is no such page


class Pages:
    """Listens until closed. UserError if the address cannot be had; `setting` is what the operator has to change."""

    def __init__(self, listen: str, pages: Mapping[str, Page], setting: str, more: More = lambda path: None) -> None:
        host, _, port = listen.rpartition(":")
        try:
            self._server = _Bounded((host.strip("[]"), int(port)), _door(pages, more))
        except (OSError, OverflowError, ValueError) as error:
            raise UserError(
                f"{setting} {listen!r} cannot be listened on: {error}; choose another or empty it"
            ) from None
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(LOOK_S,), name="metrics", daemon=True).start()

    def close(self) -> None:
        self._server.socket.close()


class _Visit:
    """A connection: whose, since when, and whether its request is whole."""

    def __init__(self, wire: socket.socket, source: str) -> None:
        self.wire, self.source, self.since = wire, source, time.monotonic()
        self.asked = self.ended = False

    def end(self) -> None:
        """From another thread: its own wakes up with nothing more to read or write."""
        self.ended = True
        with suppress(OSError):
            self.wire.shutdown(socket.SHUT_RDWR)


class _Bounded(ThreadingHTTPServer):
    """At most AT_ONCE requests at a time. Slow strangers keep no place from a probe."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], door: type[BaseHTTPRequestHandler]) -> None:
        self._seats = threading.BoundedSemaphore(AT_ONCE)
        self._visits: dict[socket.socket, _Visit] = {}  # in the order they came
        super().__init__(address, door)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's own asks the name service who we are, which may hang
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def service_actions(self) -> None:
        """Every now and then: whose time is up."""
        now = time.monotonic()
        for visit in list(self._visits.values()):
            if now - visit.since > (ANSWER_S if visit.asked else PATIENCE_S):
                visit.end()

    def process_request(self, request: Any, client_address: Any) -> None:
        source = source_of(str(client_address[0]))
        self._bound(source)
        if not self._seats.acquire(blocking=False):
            self._make_room()
            if not self._seats.acquire(timeout=MAKE_ROOM_S):
                self.shutdown_request(request)
                return
        self._visits[request] = _Visit(request, source)
        super().process_request(request, client_address)

    def _bound(self, source: str) -> None:
        mine = [visit for visit in list(self._visits.values()) if visit.source == source and not visit.ended]
        if len(mine) >= OF_ONE:
            mine[0].end()

    def _make_room(self) -> None:
        """Whoever was shown out a moment ago is about to leave his place: that is enough."""
        there, late = list(self._visits.values()), time.monotonic() - READ_S
        if not any(visit.ended for visit in there):
            slow = [visit for visit in there if not visit.asked] or [visit for visit in there if visit.since <= late]
            for visit in slow[:1]:
                visit.end()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._visits.pop(request, None)
            self._seats.release()

    def asked(self, request: socket.socket) -> None:
        """Its request is whole: now it is our turn."""
        if (visit := self._visits.get(request)) is not None:
            visit.asked = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request to the metrics port ended early", exc_info=True)


def _door(pages: Mapping[str, Page], more: More) -> type[BaseHTTPRequestHandler]:
    *others, last = pages
    there = f"there are {', '.join(others)} and {last}\n".encode()

    class Door(BaseHTTPRequestHandler):
        timeout = PATIENCE_S
        server_version, sys_version = f"sickbay/{__version__}", ""

        def do_GET(self) -> None:
            self.server.asked(self.request)  # type: ignore[attr-defined]
            path = self.path.partition("?")[0]
            page = pages.get(path)
            status, body = page() if page is not None else more(path) or (404, there)
            self.send_response(status)
            self.send_header("Content-Type", TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    return Door
