"""Publisher http: POST {ingest_url}/v1/report, a Bearer token, kept alive, from a spool on disk, at least once.

Answers: 2xx taken; 400, 413 (and 422) never will be, so that one report is dropped and said; 401, 403: the token is
wrong, said loudly and kept; anything else is tried again, later and later, with jitter. It must never log the token,
and goes through no proxy: a node's own network is the only one it may trust with it.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import random
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from sickbay import atomic, wire
from sickbay.agent.measures import Measures
from sickbay.agent.publishers import Item, Told
from sickbay.agent.publishers.spool import Spool
from sickbay.errors import UserError

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
MOST_TOKEN = 65_536  # bytes
FIRST_S, LONGEST_S = 0.5, 30.0
FRESH_S = 1.0  # something new may shorten the wait to this
SAY_AGAIN_S = 300.0
REFUSED = frozenset({400, 413, 422})
TOKEN_WRONG = frozenset({401, 403})


class HttpPublisher:
    name = "http"
    takes: type[Told] | type[Measures] = Told

    def __init__(
        self, url: str, spool: Spool, *, token_file: str = "", ca_file: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        parts = urlsplit(url)
        if not parts.hostname:
            raise UserError('publisher http needs agent.ingest_url, such as "https://sickbay.example.com:8443"')
        self._host, self._port, self._tls = parts.hostname, parts.port, parts.scheme == "https"
        self._path = parts.path.rstrip("/") + "/v1/report"
        self._where = f"{parts.scheme}://{parts.hostname}:{parts.port or (443 if self._tls else 80)}"
        self._spool, self._token_file, self._ca_file, self._clock = spool, token_file, ca_file, clock
        self._open: http.client.HTTPConnection | None = None
        self._failures = 0
        self._tried_at = float("-inf")
        self._next_at = float("-inf")
        self._said_at: dict[str, float] = {}
        self._without_disk = False
        self.sent = self.refused = self.failed = 0

    # -- the Publisher ------------------------------------------------------------------------------------------------

    def publish(self, item: Item) -> None:
        if isinstance(item, Told):
            self._spool.add(item.report.sequence, wire.encode(item.report))
            self._mind_the_disk()
            self._next_at = min(self._next_at, self._tried_at + FRESH_S)

    def work(self) -> float | None:
        while (found := self._spool.oldest()) is not None:
            if (wait := self._next_at - self._clock()) > 0:
                return wait
            name, data = found
            if self._deliver(data):
                self._spool.done(name)
        return None

    def _mind_the_disk(self) -> None:
        """Said when it begins and when it is over: a full disk is full for long."""
        trouble = self._spool.trouble
        if trouble and not self._without_disk:
            log.error(
                "publisher http: the spool cannot be written (%s): reports are still sent, but those that nobody has "
                "taken yet do not survive a restart of the agent; free space or check the folder's rights", trouble,
            )  # fmt: skip
        elif self._without_disk and not trouble:
            log.info("publisher http: the spool can be written again")
        self._without_disk = bool(trouble)

    def figures(self) -> dict[str, float]:
        spool = self._spool
        return {
            "sent": float(self.sent), "refused": float(self.refused), "failed": float(self.failed),
            "dropped": float(spool.dropped), "spooled": float(len(spool)), "spooled_bytes": float(spool.bytes),
            "unspooled": float(spool.unspooled), "damaged": float(spool.damaged),
        }  # fmt: skip

    def close(self) -> None:
        self._hang_up()

    # -- one report ---------------------------------------------------------------------------------------------------

    def _deliver(self, data: bytes) -> bool:
        """True when this report needs no further try."""
        self._tried_at = self._clock()
        try:
            status, after, said = self._post(data)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._hang_up()
            return self._later(f"cannot reach {self._where}: {str(error) or type(error).__name__}")
        if 200 <= status < 300:
            self._failures, self._next_at = 0, float("-inf")
            self.sent += 1
            return True
        if status in REFUSED:
            self.refused += 1
            self._say("refused", f"{self._where} will never take a report ({status}: {said}); it was dropped")
            return True
        if status in TOKEN_WRONG:
            return self._later(
                f"{self._where} does not accept this node's token ({status}: {said}); reports are kept on disk. Make a "
                f"new one with `sickbay token NODE` and put it into {self._token_file or 'agent.token_file'}"
            )
        return self._later(f"{self._where} answered {status}: {said}", after)

    def _post(self, data: bytes) -> tuple[int, float, str]:
        """(status, seconds to wait if it says so, what it said). A kept connection that was closed is tried anew."""
        headers = {"Content-Type": "application/json", "User-Agent": "sickbay-agent"}
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
        if self._open is not None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self._ask(self._open, data, headers)
            self._hang_up()
        self._open = self._connected()
        return self._ask(self._open, data, headers)

    def _ask(
        self, connection: http.client.HTTPConnection, data: bytes, headers: dict[str, str]
    ) -> tuple[int, float, str]:
        connection.request("POST", self._path, data, headers)
        answer = connection.getresponse()
        said = answer.read(65_536)
        if answer.will_close or answer.read(1):
            self._hang_up()
        after = answer.headers.get("Retry-After", "")
        return answer.status, float(after) if after.isdecimal() else 0.0, _printable(said)

    def _connected(self) -> http.client.HTTPConnection:
        if not self._tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        context = ssl.create_default_context()
        if self._ca_file:
            atomic.prove(Path(self._ca_file))
            context.load_verify_locations(self._ca_file)
        return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=context)

    def _hang_up(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _token(self) -> str:
        """Read each time: tokens are rotated by replacing the file."""
        if not self._token_file:
            return ""
        try:
            with atomic.opened(Path(self._token_file)) as file:
                words = file.read(MOST_TOKEN).decode("ascii").split()
        except (OSError, UnicodeDecodeError) as error:
            self._say("token", f"agent.token_file {self._token_file} cannot be read: {error}")
            return ""
        return words[0] if words else ""

    def _later(self, why: str, after: float = 0.0) -> bool:
        self.failed += 1
        wait = min(LONGEST_S, FIRST_S * 2.0 ** min(self._failures, 16)) * random.uniform(0.5, 1.0)
        self._failures += 1
        self._next_at = self._clock() + max(wait, min(after, 300.0))
        self._say("later", why)
        return False

    def _say(self, kind: str, text: str) -> None:
        """Loudly, and not each time."""
        if self._clock() - self._said_at.get(kind, float("-inf")) >= SAY_AGAIN_S:
            self._said_at[kind] = self._clock()
            log.error("publisher http: %s", text)


def _printable(said: bytes) -> str:
    text = said[:200].decode("utf-8", "replace")
    return "".join(char if char.isprintable() else " " for char in text).strip() or "no words"
