"""One API server: ask, write, stream. Synchronous, safe from many threads, connections kept and shared.

Called by everybody who speaks to Kubernetes. A read is tried once more on a new connection; a write never is: whether
it arrived is then not known, and the caller's own compare-and-set says. What was told 429 was not carried out, and is
asked again shortly after, whatever it is. Bodies are decoded straight into the subset of
fields that the caller names (a msgspec type), so that a 12 KB node costs what we use of it.
"""

from __future__ import annotations

import http.client
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec

from sickbay.errors import ApiError, Unreachable, UserError
from sickbay.kube import traffic
from sickbay.kube.access import Access, find_access
from sickbay.typed import decoder

T = TypeVar("T")

TIMEOUT_S = 8.0  # for one answer: a door must answer within ten
BUSY_S = (0.2, 0.5, 1.0)  # what is told 429 is asked again so much later: overload, or a kind's first moments
MOST_IDLE = 64
KEEP_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
PAGE = 500  # items a list request
MOST_BYTES = 64 << 20  # of one answer
PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Cause(msgspec.Struct):
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    """metav1.Status, as far as a person needs it."""

    reason: str = ""
    message: str = ""
    details: _Details | None = None


def open_api(kubeconfig: str = "", context: str = "") -> Api:
    return Api(find_access(kubeconfig, context))


class Api:
    def __init__(self, access: Access, *, timeout_s: float = TIMEOUT_S, name: str = "sickbay") -> None:
        self.access, self._timeout_s, self._name = access, timeout_s, name
        self._idle: deque[http.client.HTTPSConnection] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._date = ("", 0.0)  # what the server said the time was, and when by our clock

    @property
    def ahead_s(self) -> float:
        """How far the server's clock is before ours, by its last answer: its timestamps are compared with its time."""
        said, at = self._date
        try:
            ahead = parsedate_to_datetime(said).timestamp() - at
        except (TypeError, ValueError):
            return 0.0
        return ahead if abs(ahead) > 2.0 else 0.0  # it speaks in whole seconds, and an answer takes time

    # -- asking

    def get(self, path: str, kind: type[T], **params: str) -> T:
        return decode(kind, self.request("GET", path, params=params))

    def find(self, path: str, kind: type[T], **params: str) -> T | None:
        """As get, None when it is not there."""
        try:
            return self.get(path, kind, **params)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def pages(self, path: str, item: type[T], **params: str) -> Iterator[tuple[list[T], ListMeta]]:
        """A list, a page at a time: memory follows the page. The version to watch from is on the last page."""
        token = ""
        while True:
            kind = _page_of(cast(Any, item))
            page = self.get(path, kind, limit=str(PAGE), **params, **({"continue": token} if token else {}))
            yield page.items, page.metadata
            token = page.metadata.continue_
            if not token:
                return

    def list(self, path: str, item: type[T], **params: str) -> list[T]:
        return [one for page, _ in self.pages(path, item, **params) for one in page]

    # -- writing; each returns the object as stored, decoded as `kind`

    def create(self, path: str, body: object, kind: type[T], **params: str) -> T:
        return decode(kind, self.request("POST", path, body, params=params))

    def replace(self, path: str, body: object, kind: type[T], **params: str) -> T:
        return decode(kind, self.request("PUT", path, body, params=params))

    def patch(self, path: str, body: object, kind: type[T], how: str = "merge", **params: str) -> T:
        """`how`: merge, json, strategic or apply. Put metadata.resourceVersion in a merge to make it conditional."""
        return decode(kind, self.request("PATCH", path, body, params=params, content=PATCHES[how]))

    def delete(self, path: str, body: object = None, **params: str) -> None:
        """`body`: DeleteOptions, such as {"preconditions": {"uid": …}}. No error when it is not there."""
        try:
            self.request("DELETE", path, body, params=params)
        except ApiError as error:
            if not error.not_found:
                raise

    # -- the wire

    def request(
        self, method: str, path: str, body: object = None, *, params: Mapping[str, str] | None = None,
        content: str = "application/json",
    ) -> bytes:  # fmt: skip
        """The answer's body. ApiError for anything but 2xx, Unreachable when there was none."""
        for pause in BUSY_S:
            try:
                return self._request(method, path, body, params, content)
            except ApiError as error:
                if not error.busy:
                    raise
                time.sleep(max(pause, min(error.retry_after, BUSY_S[-1])))
        return self._request(method, path, body, params, content)

    def _request(self, method: str, path: str, body: object, params: Mapping[str, str] | None, content: str) -> bytes:
        data = None if body is None else _bytes(body)
        target = self._target(path, params)
        headers = self._headers(content if data is not None else "")
        for again in (False, True):
            connection = (None if again else self._idle_one()) or self._new()
            try:
                return self._ask(connection, method, target, data, headers)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._hang_up()  # what broke this one has broken those that lie idle, and each would take its time
                if again or method != "GET":
                    traffic.count(method, 0)
                    raise Unreachable(f"{method} {path}", _why(error)) from error
        raise AssertionError("not reached")

    def _ask(
        self, connection: http.client.HTTPSConnection, method: str, target: str, data: bytes | None,
        headers: dict[str, str],
    ) -> bytes:  # fmt: skip
        connection.request(method, target, data, headers)
        answer = connection.getresponse()
        said = answer.read(MOST_BYTES)
        traffic.count(method, answer.status, said)
        self._date = (answer.headers.get("Date", ""), time.time())
        if answer.will_close or not answer.isclosed():
            connection.close()
        else:
            self._keep(connection)
        if not 200 <= answer.status < 300:
            raise _error(answer, said, f"{method} {target.partition('?')[0]}")
        return said

    @contextmanager
    def stream(
        self, path: str, params: Mapping[str, str], quiet_s: float,
        opened: Callable[[socket.socket], None] | None = None,
    ) -> Iterator[http.client.HTTPResponse]:  # fmt: skip
        """An answer that is read as it comes, such as a watch or a log. TimeoutError after `quiet_s` of silence.

        `opened` is given the socket, for a reader who must be able to hang up from another thread.
        """
        connection, headers = self._new(), self._headers("")
        try:
            connection.connect()
            if opened is not None:
                opened(connection.sock)
            connection.request("GET", self._target(path, params), headers=headers)
            answer = connection.getresponse()
            traffic.count("WATCH", answer.status)
            if answer.status != 200:
                raise _error(answer, answer.read(65_536), f"GET {path}")
            if connection.sock is not None:  # until here the ordinary time limit held
                connection.sock.settimeout(quiet_s)
            yield answer
        finally:
            connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._hang_up()

    def _hang_up(self) -> None:
        """On those that lie idle."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _target(self, path: str, params: Mapping[str, str] | None) -> str:
        query = f"?{urlencode(params)}" if params else ""
        return f"{self.access.prefix}{path}{query}"

    def _headers(self, content: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": self._name}
        if content:
            headers["Content-Type"] = content
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _token(self) -> str:
        """A credential that cannot be had now (a hiccup of `aws eks get-token`) says nothing about what we asked."""
        try:
            return self.access.token()
        except (UserError, OSError) as error:
            raise Unreachable("credentials", _why(error)) from error

    def _new(self) -> http.client.HTTPSConnection:
        access = self.access
        return _Connection(access.host, access.port, timeout=self._timeout_s, context=access.tls())

    def _idle_one(self) -> http.client.HTTPSConnection | None:
        while True:
            with self._lock:
                found = self._idle.pop() if self._idle else None
            if found is None or _is_quiet(found):
                return found
            found.close()  # the server hung up, or speaks unasked: either way not ours any more

    def _keep(self, connection: http.client.HTTPSConnection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()


class _Connection(http.client.HTTPSConnection):
    """A peer that is gone without a word (a dead load balancer, a cut cable) is noticed after half a minute, also while
    nothing is asked."""

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEP_ALIVE.items():
            if hasattr(socket, name):
                self.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _is_quiet(connection: http.client.HTTPSConnection) -> bool:
    sock = connection.sock
    if sock is None:
        return False
    try:
        poll = select.poll()  # not select(): file descriptors above 1023 are ordinary in a busy process
        poll.register(sock, select.POLLIN)
        return not poll.poll(0)
    except (OSError, ValueError):
        return False


def _error(answer: http.client.HTTPResponse, said: bytes, where: str) -> ApiError:
    try:
        status = msgspec.json.decode(said, type=_Status)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        status = _Status(answer.reason, said[:300].decode("utf-8", "replace").strip())
    after = answer.headers.get("Retry-After", "")
    causes = (status.details.causes or ()) if status.details else ()
    wait_s = float(after) if after.isdigit() else 0.0
    return ApiError(answer.status, status.reason, status.message, where, wait_s, tuple(c.message for c in causes[:8]))


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


def _bytes(body: object) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def segment(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def decode(kind: type[T], data: bytes) -> T:
    """JSON into `kind`, the decoder made once. ApiError when the server's answer is not what it says it is."""
    try:
        return cast(T, decoder(kind).decode(data))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ApiError(0, "Unreadable", f"not a {kind.__name__}: {error}") from error


@cache
def _page_of(item: Any) -> Any:
    many: Any = list[item]
    fields: list[Any] = [
        ("items", many, msgspec.field(default_factory=list)),
        ("metadata", ListMeta, msgspec.field(default_factory=ListMeta)),
    ]
    return msgspec.defstruct(f"{item.__name__}Page", fields)
