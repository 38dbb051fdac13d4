"""Following one kind of object: list it, then watch it, for ever, whatever happens to the connection.

Called by the store (its own records) and by the platform (nodes, pods, jobs). A `Reflector` is a thread that tells a
`sink`, in order per object and at least once. It keeps uid and version of each object and nothing else; a list is read
a page at a time, so memory follows the page. It must never die, never miss a deletion (those that happened while nobody
was listening are told after the next list), and never go back to an older state: lists ask for the most recent one
(no resourceVersion), watches resume from the last version that was told.
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from sickbay.errors import ApiError, SickbayError
from sickbay.kube.api import Api, ListMeta
from sickbay.kube.objects import Meta, Shape
from sickbay.typed import decoder

log = logging.getLogger(__name__)

QUIET_S = 75.0  # a bookmark comes about every minute: after this much silence the connection is taken for dead
WATCH_S = (300, 600)  # how long the server may serve one watch; a random point, so that clients do not return together
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
LIVED_S = 5.0  # a watch that lasted this long was a good one: the next pause is short again
READ_BYTES = 1 << 18
MOST_LINE = 16 << 20  # an object is 1.5 MB at most in etcd


class HasMeta(Protocol):
    metadata: Meta


T = TypeVar("T", bound=HasMeta)
T_co = TypeVar("T_co", bound=HasMeta, covariant=True)


@dataclass(frozen=True, slots=True)
class Put(Generic[T_co]):
    """It is there, and this is how it looks now."""

    object: T_co


@dataclass(frozen=True, slots=True)
class Gone:
    """It is not there any more. `version`: of the deletion, or of the list in which it was missing."""

    name: str
    namespace: str
    uid: str
    version: int


@dataclass(frozen=True, slots=True)
class Synced:
    """Everything that was there when the list was made has been told. Comes again after each further list."""


Told = Put[T] | Gone | Synced
Sink = Callable[[Put[T] | Gone | Synced], None]


class _Head(Shape):
    """Of a list, without what is in it."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


class _Expired(Exception):
    """The version to continue from is forgotten (410), or what we were told cannot be trusted: list again."""


class _Untold(Exception):
    """The sink raised: it may have taken in nothing of what it was told."""


class Reflector(Generic[T]):
    """One thread for one path. `sink` is called on that thread only; if it raises, everything is told anew."""

    def __init__(
        self, api: Api, path: str, item_type: type[T], sink: Sink[T], *, params: Mapping[str, str] | None = None,
        quiet_s: float = QUIET_S, watch_s: tuple[int, int] = WATCH_S, put_back: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._api, self._path, self._item, self._sink = api, path, item_type, sink
        self._params, self._quiet_s, self._watch_s = dict(params or {}), quiet_s, watch_s
        self._known: dict[tuple[str, str], tuple[str, int]] = {}  # (namespace, name) -> (uid, version)
        self._version = ""  # where the next watch begins; "": list first
        self._newest = 0  # version that was ever told: an API server goes below it only when it was put back
        self._put_back, self._broken = put_back, False
        self._pause = FIRST_PAUSE_S
        self._stop, self._socket = threading.Event(), None  # type: tuple[threading.Event, socket.socket | None]
        self._thread = threading.Thread(target=self._serve, name=f"watch {path.rpartition('/')[2]}", daemon=True)
        self.synced = threading.Event()  # set after the first list, for good
        self.lists = self.watches = 0  # complete lists and begun watches so far
        self.heard_at = 0.0  # monotonic: when the server last said anything

    @property
    def version(self) -> int:
        """The newest version that was told, bookmarks included."""
        return int(self._version) if self._version.isdigit() else 0

    def there(self) -> set[str]:
        """The names of what is there, as told so far; for a sink that hears Synced."""
        return {name for _, name in self._known}

    def start(self) -> Reflector[T]:
        self._thread.start()
        return self

    def stop(self, wait_s: float = 5.0) -> None:
        """Hang up and wait for the thread; the sink is not called afterwards."""
        self._stop.set()
        self._hang_up()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(wait_s)

    def _hang_up(self) -> None:
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):  # of the plain socket: the TLS layer's own is not for a second thread
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    # -- the thread

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                self._turn()
            except _Expired as expired:
                log.info("%s: listing again: %s", self._path, expired)
                self._version = ""
                self._rest(0.0)
            except (SickbayError, OSError, http.client.HTTPException) as error:
                self._mishap(error)
            except Exception:  # _Untold, or a mistake of ours
                log.exception("%s: what was told could not be taken in, telling everything again", self._path)
                self._version, self._known = "", {key: (uid, 0) for key, (uid, _) in self._known.items()}
                self._rest(0.0)

    def _turn(self) -> None:
        if self._broken and self._version and self._is_put_back():
            self._version = ""
        if not self._version:
            self._list()
        self._broken = False
        self._watch()

    def _is_put_back(self) -> bool:
        """To a state before the one we know (etcd from a backup): it takes a watch from a version still to come, and
        tells nothing of what happens until it gets there. Asked after each break, since none is put back without."""
        head = self._api.get(self._path, _Head, limit="1", **self._params)
        return self._number(head.metadata.resource_version) < self._newest

    def _number(self, version: str) -> int:
        return int(version) if version.isdigit() else self._newest

    def _mishap(self, error: Exception) -> None:
        """Not a word in the log for silence: the next watch continues where this one ended."""
        if self._stop.is_set():
            return
        self._broken = True
        if isinstance(error, ApiError) and error.expired:
            self._version = ""
        elif not isinstance(error, TimeoutError):
            # Aloud at the first break and then once in a while: a dozen watches lose one server together.
            aloud = self._pause in (FIRST_PAUSE_S, LONGEST_PAUSE_S)
            log.log(
                logging.WARNING if aloud else logging.DEBUG,
                "%s: watch interrupted, again in %.1f s: %s", self._path, self._pause, error,
            )  # fmt: skip
        self._rest(error.retry_after if isinstance(error, ApiError) else 0.0)

    def _rest(self, least_s: float) -> None:
        """Back-off with jitter: a thousand clients must not return to a restarted server in the same moment."""
        self._stop.wait(max(least_s, self._pause * random.uniform(0.5, 1.0)))
        self._pause = min(self._pause * 2, LONGEST_PAUSE_S)

    def _tell(self, told: Put[T] | Gone | Synced) -> None:
        """Before it is noted: what the sink did not take in is told again."""
        if self._stop.is_set():
            return
        try:
            self._sink(told)
        except Exception as error:
            raise _Untold from error

    # -- listing

    def _list(self) -> None:
        """The most recent state, a page at a time. A continue token that expired on the way is a 410: begin again."""
        seen: set[tuple[str, str]] = set()
        version = ""
        for items, meta in self._api.pages(self._path, self._item, **self._params):
            self.heard_at = time.monotonic()
            if self._number(meta.resource_version) < self._newest:
                self._go_back()
            for item in items:
                seen.add((item.metadata.namespace, item.metadata.name))
                self._put(item)
            version = meta.resource_version or version
            if self._stop.is_set():
                return
        self._bury(seen, int(version) if version.isdigit() else 0)
        self._version, self.lists = version, self.lists + 1
        self._newest = self._number(version)
        self._tell(Synced())
        self.synced.set()

    def _go_back(self) -> None:
        """What is there now is told although it is older than what was told before."""
        log.warning("%s: the API server was put back to an earlier state, telling everything again", self._path)
        self._newest, self._known = 0, {key: (uid, 0) for key, (uid, _) in self._known.items()}
        self._put_back()

    def _bury(self, seen: set[tuple[str, str]], version: int) -> None:
        for namespace, name in [key for key in self._known if key not in seen]:
            self._lose(namespace, name, version)

    def _lose(self, namespace: str, name: str, version: int) -> None:
        self._tell(Gone(name, namespace, self._known[namespace, name][0], version))
        del self._known[namespace, name]

    def _put(self, item: T) -> None:
        """Told only if it is news, never an older state. The same name with another uid: the first one went, unseen."""
        meta = item.metadata
        key, version = (meta.namespace, meta.name), meta.version
        uid, known = self._known.get(key, ("", 0))
        if uid and uid != meta.uid:
            self._lose(meta.namespace, meta.name, version)
        elif uid and version <= known:
            return
        self._tell(Put(item))
        self._known[key] = (meta.uid, version)

    # -- watching

    def _watch(self) -> None:
        params = {
            **self._params, "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*self._watch_s)),
        }  # fmt: skip
        began = time.monotonic()
        try:
            with self._api.stream(self._path, params, self._quiet_s, self._opened) as answer:
                self.watches += 1
                for line in _lines(answer):
                    self._hear(line)
                    if self._stop.is_set():
                        return
            self._rest(0.0)  # an orderly end: the server's time was up, or it goes down
        finally:
            self._socket = None
            if time.monotonic() - began > LIVED_S:
                self._pause = FIRST_PAUSE_S

    def _opened(self, sock: socket.socket) -> None:
        self._socket = sock
        if self._stop.is_set():  # stopped while we were connecting
            self._hang_up()

    def _hear(self, line: bytes) -> None:
        self.heard_at = time.monotonic()
        try:
            event = _decoder(cast(Any, self._item)).decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _complaint(line, error) from error
        meta: Meta = event.object.metadata
        if event.type == "DELETED":
            self._gone(meta)
        elif event.type in ("ADDED", "MODIFIED"):
            self._put(event.object)
        elif event.type != "BOOKMARK":
            raise _complaint(line, None)
        self._version, self._pause = meta.resource_version, FIRST_PAUSE_S
        self._newest = max(self._newest, self._number(self._version))

    def _gone(self, meta: Meta) -> None:
        uid, _ = self._known.get((meta.namespace, meta.name), ("", 0))
        if uid == meta.uid:
            self._lose(meta.namespace, meta.name, meta.version)


def _lines(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """Whole lines, however the server cut them."""
    rest: list[bytes] = []
    held = 0
    while data := answer.read1(READ_BYTES):
        first, *more = data.split(b"\n")
        rest.append(first)
        if more:
            yield b"".join(rest)
            yield from more[:-1]
            rest, held = [more[-1]], 0
        held += len(first)
        if held > MOST_LINE:
            raise _Expired(f"the server sent a line of more than {MOST_LINE >> 20} MB")


class _Failure(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


class _ErrorEvent(msgspec.Struct):
    type: str = ""
    object: _Failure = msgspec.field(default_factory=_Failure)


def _complaint(line: bytes, error: Exception | None) -> Exception:
    """What an ERROR event says (its object is a Status); anything else that cannot be read means listing again."""
    try:
        said = msgspec.json.decode(line, type=_ErrorEvent)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        said = _ErrorEvent()
    if said.type != "ERROR":
        return _Expired(f"an event that cannot be read ({error or said.type})")
    if said.object.code == 410:
        return _Expired(said.object.message)
    return ApiError(said.object.code, said.object.reason, said.object.message, "watch")


@cache
def _decoder(item: Any) -> msgspec.json.Decoder[Any]:
    """Straight from the line into the subset of fields: no dictionary in between."""
    return decoder(msgspec.defstruct(f"{item.__name__}Event", [("type", str), ("object", item)]))
