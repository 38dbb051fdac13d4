"""Notices as signed HTTP POSTs: our notice and the originals' payload as JSON, to one address.

Called by the outbox. 2xx is delivered. 400, 413 and 422 are about the notice: it is refused. All else is about the way
there (a receiver in the middle of its roll-out says 404, an expired login 401) and is tried again later. Redirects are
not followed: a secret address must not be handed on. The address is a secret: only its host is ever said. To check a
signature: v1 of X-Sickbay-Signature is the HMAC-SHA256 of "<t>.<body>" with the shared secret; let t be no older than
five minutes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from sickbay import atomic
from sickbay.errors import UserError
from sickbay.model import Done, Failed, Notice, Outcome, Retry
from sickbay.notifiers.words import payload

TIMEOUT_S = 5.0  # for each word of the other side
WHOLE_S = 10.0  # for all of it
MOST_SECRET = 4_096
SHORTEST_SECRET = 16
LONGEST_WAIT_S = 3_600.0
REFUSALS = frozenset({400, 413, 422})


class WebhookNotifier:
    """ports.Notifier. `instance` names the machine of a node, where somebody knows it."""

    name = "webhook"

    def __init__(
        self, url: str, cluster: str, secret_file: str = "", *, clock: Callable[[], float] = time.time,
        instance: Callable[[str], str] | None = None,
    ) -> None:  # fmt: skip
        self._to, self._cluster, self._clock, self._instance = _address(url), cluster, clock, instance
        self._secret_file = Path(secret_file).expanduser() if secret_file else None
        if self._secret_file is not None:
            _secret(self._secret_file)  # said at the start, not at the first notice

    def send(self, notice: Notice) -> Outcome:
        node = notice.case.rpartition(".")[0]
        body = msgspec.json.encode(payload(notice, self._cluster, self._instance(node) if self._instance else ""))
        try:
            headers = self._headers(notice, body)
        except UserError as unreadable:
            return Retry(60.0, f"not sent unsigned: {unreadable}")
        try:
            return _judged(self._to.hostname or "", *self._post(body, headers))
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Retry(0.0, f"{self._to.hostname} did not answer: {type(error).__name__}")

    def _headers(self, notice: Notice, body: bytes) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json", "User-Agent": "sickbay",
            "X-Sickbay-Notice": hashlib.sha256(notice.key.encode("utf-8", "replace")).hexdigest()[:32],
        }  # fmt: skip
        if self._to.username is not None:
            login = f"{unquote(self._to.username)}:{unquote(self._to.password or '')}"
            headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        if self._secret_file is not None:
            headers["X-Sickbay-Signature"] = sign(_secret(self._secret_file), int(self._clock()), body)
        return headers

    def _post(self, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
        """Status and Retry-After. Cut off after WHOLE_S, however slowly the other side speaks."""
        connection = _connection(self._to)
        connection.connect()
        timer = threading.Timer(WHOLE_S, _cut, (connection.sock,))
        timer.daemon = True
        timer.start()
        try:
            target = (self._to.path or "/") + (f"?{self._to.query}" if self._to.query else "")
            connection.request("POST", target, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Retry-After", "")
        finally:
            timer.cancel()
            connection.close()


def sign(secret: bytes, at: int, body: bytes) -> str:
    """The value of X-Sickbay-Signature."""
    return f"t={at},v1={hmac.new(secret, f'{at}.'.encode() + body, hashlib.sha256).hexdigest()}"


def _judged(host: str, status: int, after: str) -> Outcome:
    if 200 <= status < 300:
        return Done()
    wait = min(float(after), LONGEST_WAIT_S) if after.isascii() and after.isdigit() and len(after) < 9 else 0.0
    if status in REFUSALS:
        return Failed(f"{host} refused the notice: {status}")
    hint = ": redirects are not followed, set the address it leads to" if 300 <= status < 400 else ""
    return Retry(wait, f"{host} answered {status}{hint}")


def _address(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0 and url.isascii()
    except ValueError:
        good = False
    if not good or any(char.isspace() for char in url):
        raise UserError('notify.webhook_url is no web address: it begins with "https://" and names a host')
    return parts


def _connection(to: SplitResult) -> http.client.HTTPConnection:
    host = to.hostname or ""
    if to.scheme == "https":
        return http.client.HTTPSConnection(host, to.port, timeout=TIMEOUT_S, context=ssl.create_default_context())
    return http.client.HTTPConnection(host, to.port, timeout=TIMEOUT_S)


def _cut(sock: socket.socket | None) -> None:
    try:
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def _secret(path: Path) -> bytes:
    try:
        with atomic.named(path) as opened:
            secret = opened.read(MOST_SECRET).strip()
    except OSError as error:
        raise UserError(f"notify.webhook_secret_file {path} cannot be read: {error.strerror}") from error
    if len(secret) < SHORTEST_SECRET:
        raise UserError(
            f"notify.webhook_secret_file {path} holds fewer than {SHORTEST_SECRET} characters and could be guessed; "
            "make one with: (umask 077; openssl rand -hex 32 > FILE)"
        )
    return secret
