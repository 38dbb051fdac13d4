"""The store on Kubernetes: our records as custom resources, next to the nodes they are about; no extra database.

Several processes may use it (two controllers, a person's command line). A record is one object and a commit is one PUT
that carries the version it was made from (https://kubernetes.io/docs/reference/using-api/api-concepts/, resource
versions), so the API server does the compare-and-set; the epoch of that version is known from our last read or write,
else read. Two things need more than one object, and are made safe by order:
  - a commit that consumes commands writes their ids into the record, then deletes them; one that survives is never
    shown again, and deleted again.
  - the archive is the same object with a label. A job that comes back needs its name: the ended object is copied aside
    first, then overwritten.
People's records are answered from a watch (never older than FRESH_S), all others by the API server. It must never hold
a lock while it waits for the network.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, cast

from sickbay.errors import ApiError, NotNow, StaleWrite, StoreError, Unreadable
from sickbay.kube import names
from sickbay.kube.api import Api, decode
from sickbay.kube.watch import Gone, Put, Reflector, Synced
from sickbay.model import Case, Command, Ledger, NodeRecord, Part, Recovery
from sickbay.ports import Names, Stored, Unread, V, Value
from sickbay.stores import records
from sickbay.stores.kubernetes_answers import Deleted, explained, is_object
from sickbay.stores.kubernetes_cache import FOR_EVER, Cache, Where, seen_of
from sickbay.stores.kubernetes_objects import (
    CONSUMED,
    ENDED,
    KINDS,
    NODE,
    Body,
    Glimpse,
    Object,
    body,
    fits_label,
    key_in,
    name_of,
    stored_in,
    unread_in,
)  # fmt: skip

log = logging.getLogger(__name__)

FRESH_S = 10.0  # people's records are read from the server this often even though the watch is silent
SYNC_S = 10.0  # how long the first token may wait for the first lists
AT_ONCE = 16
CARRIERS: tuple[type[Any], ...] = (Case, Recovery, NodeRecord, Ledger, Part)  # whose writes may consume commands
LIVE = f"{ENDED}!=true"

Rows = list[Stored[Any]]


class KubernetesStore:
    """ports.Store in one namespace. Safe from many threads."""

    frugal = True  # every write goes through etcd: what may wait for another does (core/keeping.py)
    lanes = AT_ONCE  # a pass may write so many records side by side (controller/drafts.py)

    def __init__(
        self, api: Api, namespace: str, cluster: str = "", *, quiet_s: float = 75.0, owns_api: bool = False
    ) -> None:
        self.cluster, self.namespace, self._owns_api = cluster, namespace, owns_api
        self._api, self._quiet_s = api, quiet_s
        self._cache = Cache()
        self._watches: dict[type[Any], Reflector[Any]] = {}
        self._lock = threading.Lock()
        self._asked: dict[type[Any], float] = {}  # monotonic: when people's records were last read from the server
        self._unread: dict[Where, Unread] = {}
        self._listed: set[type[Any]] = set()  # kinds that were read whole at least once
        self._doomed: set[str] = set()  # commands that were consumed and could not be deleted yet
        self._closed = False

    # -- reading

    def get(self, kind: type[V], key: str) -> Stored[V] | None:
        self._open()
        key = records.lookup_key(kind, key)
        with self._plain_words(f"{kind.__name__} {key}"):
            found = self._api.find(self._path(kind, name_of(key)), Object)
            if found is None or key_in(kind, found) != key:
                found = next((one for one in self._misnamed(kind) if key_in(kind, one) == key), None)
        if found is None or found.is_ended:
            return None
        return self._take_in(kind, found)

    def list(self, kind: type[V]) -> list[Stored[V]]:
        """Live records of a kind, ordered by key."""
        self._open()
        with self._plain_words(f"the list of {KINDS[kind].plural}"):
            found = self._people(kind) if kind in records.PEOPLE else self._read_live(kind)
            if kind is Command and found:
                found = self._not_consumed(found)
        return sorted(found, key=lambda stored: records.key_of(stored.value))

    def unread(self) -> Sequence[Unread]:
        """What a list or a watch has met, and what others wrote since: a watch seldom tells more than that they did."""
        self._open()
        with self._plain_words("the records that cannot be read"):
            for kind in KINDS.keys() - self._listed:
                self._read_live(kind)
            for kind, name in (*self._cache.untried(), *self._unread):
                found = self._api.find(self._path(kind, name), Object)
                if found is None or found.is_ended:
                    self._unread.pop((kind, name), None)
                else:
                    self._try(kind, found)
        return sorted(self._unread.values(), key=lambda one: one.name)

    def history(
        self, kind: type[V], *, node: str = "", fault: str = "", since: float = 0.0, limit: int = 100
    ) -> Iterator[V]:
        """Newest end first, by the API server's own order: two clocks may disagree. Memory follows `limit`."""
        self._open()
        if kind not in records.KEPT or limit <= 0:
            return iter(())
        selector = f"{ENDED}=true"
        if node and kind is Case and fits_label(node):
            selector += f",{NODE}={node}"
        with self._plain_words(f"the archive of {KINDS[kind].plural}"):
            return iter(self._newest(kind, selector, node, fault, since, limit))

    def last_ended(self, kind: type[V], key: str) -> V | None:
        """It keeps its name until a job comes back."""
        self._open()
        with self._plain_words(f"{kind.__name__} {key}"):
            found = self._api.find(self._path(kind, name_of(key)), Object)
        there = found is not None and found.is_ended and key_in(kind, found) == key
        return cast(V | None, self._archived(kind, found)) if there and found is not None else None

    def missing(self, kind: type[V], keys: Collection[str]) -> Names:
        """By the watch; what it does not show is asked for, since it may be a moment behind."""
        self._open()
        unseen = [key for key in keys if self._cache.look(kind, name_of(key)) is None]
        with self._plain_words(f"the {KINDS[kind].plural} that went"):
            return [key for key in unseen if not self._is_live(kind, name_of(key))]

    def _is_live(self, kind: type[Any], name: str) -> bool:
        found = self._api.find(self._path(kind, name), Glimpse)
        return found is not None and found.metadata.label(ENDED) != "true"

    def moved(self, kind: type[V], key: str, version: int) -> bool:
        """By the watch, and by our own writes."""
        self._open()
        seen = self._cache.look(kind, name_of(records.lookup_key(kind, key)))
        return seen is not None and seen.version != version

    def token(self) -> int:
        """How many writes we know of. The first call begins to watch."""
        self._open()
        if not self._watches:
            self._begin_to_watch()
        return self._cache.token

    # -- writing

    def create(self, value: Value, epoch: int = 0) -> int:
        self._open()
        value = records.ready(value, self.cluster)
        made = body(value, records.epoch_of(value, epoch))
        with self._plain_words(records.describe(value)):
            try:
                return self._learn(value, self._api.create(self._path(type(value)), made, Glimpse))
            except ApiError as error:
                if not error.conflict:
                    raise
            return self._create_over(value, made)

    def commit(self, value: Value, expect: int, epoch: int, consumes: Sequence[str] = ()) -> int:
        return self._write(value, expect, epoch, consumes).metadata.version

    def archive(self, value: Case | Recovery, expect: int, epoch: int, consumes: Sequence[str] = ()) -> None:
        self._write(value, expect, epoch, consumes, ended=True)

    def delete(self, kind: type[V], key: str) -> None:
        records.refuse_delete(kind)
        self._open()
        with self._plain_words(f"{kind.__name__} {key}"):
            self._delete_all(kind, key)

    def prune(self, older_than: float) -> int:
        self._open()
        gone = 0
        with self._plain_words("the archive"), ThreadPoolExecutor(AT_ONCE, "prune") as pool:
            for kind in records.KEPT:
                for page, _ in self._api.pages(self._path(kind), Glimpse, labelSelector=f"{ENDED}=true"):
                    old = [one.metadata for one in page if one.ended < older_than]
                    gone += sum(pool.map(lambda meta, of=kind: self._delete(of, meta.name, meta.uid), old))
        return gone

    def close(self) -> None:
        """The API client stays open, others may use it too; unless it is ours alone (`owns_api`)."""
        self._closed = True
        with self._lock:
            watches = list(self._watches.values())
        for watch in watches:
            watch.stop()
        if self._owns_api:
            self._api.close()

    # -- one PUT

    def _write(self, value: Value, expect: int, epoch: int, consumes: Sequence[str], ended: bool = False) -> Glimpse:
        self._open()
        value = records.ready(value, self.cluster)
        kind, name = type(value), name_of(records.key_of(value))
        with self._plain_words(records.describe(value)):
            carried = self._refuse_stale(value, name, expect, epoch)
            consumed = tuple(dict.fromkeys((*carried, *consumes)))
            when = records.ended_at(cast(Any, value)) if ended else None
            new = body(value, records.epoch_of(value, epoch), version=expect, ended=when, consumed=consumed)
            written = self._put(value, name, new, epoch)
            if ended:
                self._cache.bury(kind, name, written.metadata.uid, written.metadata.version)
            else:
                self._learn(value, written)
        if consumed:
            self._cache.settle(kind, name, written.metadata.version, self._remove_consumed(consumed))
        return written

    def _refuse_stale(self, value: Value, name: str, expect: int, epoch: int) -> tuple[str, ...]:
        """Before the write: is this version's epoch ours? Asks the server only when that is not the version we know.
        Returns the commands that the record still carries."""
        seen = self._cache.look(type(value), name)
        if seen is None or seen.version != expect or (type(value), name) in self._unread:
            self._look(value, name, expect, epoch)
            seen = self._cache.look(type(value), name)
        if seen is None:
            raise StaleWrite(f"{records.describe(value)} is not there any more: somebody else ended or removed it")
        records.refuse_stale(value, Stored(value, seen.version, seen.epoch), expect, epoch)
        return seen.consumed

    def _look(self, value: Value, name: str, expect: int, epoch: int) -> None:
        """StaleWrite, in the words that fit what is there now; or nothing."""
        known = self._cache.look(type(value), name)
        found = self._api.find(self._path(type(value), name), Object)
        if found and known and found.metadata.uid == known.uid and found.metadata.version < known.version:
            log.warning("%s is older than it was: the API server was put back to an earlier state", name)
            self._cache.forget(type(value))
        there = found is not None and not found.is_ended
        records.refuse_stale(value, self._take_in(type(value), cast(Object, found)) if there else None, expect, epoch)

    def _put(self, value: Value, name: str, new: Body, epoch: int) -> Glimpse:
        try:
            return self._api.replace(self._path(type(value), name), new, Glimpse)
        except ApiError as error:
            if error.conflict or (error.not_found and is_object(error, type(value))):
                self._look(value, name, int(new.metadata["resourceVersion"]), epoch)
                raise StaleWrite(f"{records.describe(value)} has moved on: look again") from error
            raise

    def _learn(self, value: Value, written: Glimpse) -> int:
        """What we wrote is what is there: nothing needs to be read back."""
        meta = written.metadata
        stored = Stored(value, meta.version, written.epoch) if isinstance(value, records.PEOPLE) else None
        self._cache.learn(type(value), meta.name, seen_of(meta, written.epoch, written.consumed, stored))
        return meta.version

    def _take_in(self, kind: type[Any], found: Object) -> Stored[Any]:
        """Unreadable: then it is remembered as that, and what it said before is not true any more."""
        where, stored = (kind, found.metadata.name), None
        try:
            stored = stored_in(kind, found)
            self._unread.pop(where, None)
            return stored
        except Unreadable as error:
            self._unread[where] = unread_in(kind, found, self.namespace, str(error))
            raise
        finally:
            kept = stored if kind in records.PEOPLE else None
            self._cache.learn(*where, seen_of(found.metadata, found.epoch, found.consumed, kept))

    def _try(self, kind: type[Any], found: Object) -> Stored[Any] | None:
        try:
            return self._take_in(kind, found)
        except Unreadable:
            return None

    # -- a name that is taken

    def _create_over(self, value: Value, made: Body) -> int:
        name = made.metadata["name"]
        found = self._api.find(self._path(type(value), name), Object)
        if found is None:
            raise records.already_there(value, ", or did a moment ago: look again")
        if found.key and found.key != made.key:
            raise StoreError(
                f"{records.describe(value)}: its object name {name} belongs to {found.key}: delete that one"
            )
        if not found.is_ended:
            self._take_in(type(value), found)
            raise records.already_there(value)
        if not isinstance(value, Recovery):
            raise records.already_there(value, " in the archive: case numbers are never used twice")
        return self._come_back(value, made, found)

    def _come_back(self, value: Recovery, made: Body, ended: Object) -> int:
        """The job is back, its last recovery has ended under this name. A crash in between leaves a copy that `history`
        recognises by the version it is of."""
        version, name = ended.metadata.version, ended.metadata.name
        aside = f"{name[: names.LONGEST_NAME - 21]}-{version}"
        was = stored_in(Recovery, ended).value
        copy = body(was, ended.epoch, name=aside, ended=ended.ended, of=version, consumed=tuple(ended.consumed or ()))
        try:
            self._api.create(self._path(Recovery), copy, Glimpse)
        except ApiError as error:
            if not error.conflict:  # else: copied by somebody, or by us before a crash
                raise
        made.metadata = {**made.metadata, "resourceVersion": str(version)}
        try:
            return self._learn(value, self._api.replace(self._path(Recovery, name), made, Glimpse))
        except ApiError as error:
            if error.conflict:
                raise records.already_there(value) from error
            raise

    # -- the lists

    def _read_live(self, kind: type[Any]) -> Rows:
        params = {"labelSelector": LIVE} if kind in records.KEPT else {}
        found: Rows = []
        there: set[str] = set()
        version = 0
        for page, meta in self._api.pages(self._path(kind), Object, **params):
            version = int(meta.resource_version or 0)
            there.update(one.metadata.name for one in page)
            found += [stored for one in page if (stored := self._try(kind, one)) is not None]
        self._cache.bury_missing(kind, there, version)
        self._listed.add(kind)
        for where in [where for where in self._unread if where[0] is kind and where[1] not in there]:
            del self._unread[where]
        return found

    def _people(self, kind: type[Any]) -> Rows:
        watch, now = self._watches.get(kind), time.monotonic()
        if watch is not None and watch.synced.is_set() and now - self._asked.get(kind, -FRESH_S) < FRESH_S:
            return self._cache.people(kind)
        found = self._read_live(kind)
        self._asked[kind] = now
        return found

    def _misnamed(self, kind: type[Any]) -> Iterable[Object]:
        """People may apply a Pause or a Command under any object name: the key inside is what counts."""
        return self._api.list(self._path(kind), Object) if kind in records.PEOPLE else ()

    def _newest(self, kind: type[Any], selector: str, node: str, fault: str, since: float, limit: int) -> Sequence[Any]:
        best: list[tuple[int, int, Any]] = []
        rank, whole = count(), set()
        for found in self._ended(kind, selector):
            order = found.of or found.metadata.version
            if found.ended < since or order in whole:
                continue
            whole.add(order)
            if len(best) == limit and order <= best[0][0]:
                continue
            value = self._archived(kind, found)
            if value is None:
                continue
            if (node and node not in records.nodes_of(value)) or (fault and fault not in records.faults_of(value)):
                continue
            (heapq.heappushpop if len(best) == limit else heapq.heappush)(best, (order, next(rank), value))
        return [value for _, _, value in sorted(best, reverse=True)]

    def _archived(self, kind: type[Any], found: Object) -> Any:
        with suppress(Unreadable):
            return stored_in(kind, found).value

    def _ended(self, kind: type[Any], selector: str) -> Iterator[Object]:
        for page, _ in self._api.pages(self._path(kind), Object, labelSelector=selector):
            yield from page

    # -- commands that were carried out

    def _remove_consumed(self, commands: Sequence[str]) -> Sequence[str]:
        """After the commit: its commands go. Those that could not be deleted are remembered, here and in the record."""
        left = []
        for command in commands:
            try:
                self._delete_all(Command, command)
                self._doomed.discard(command)
            except ApiError as error:
                log.warning("command %s was carried out but not deleted yet: %s", command, error)
                self._doomed.add(command)
                left.append(command)
        return left

    def _not_consumed(self, found: Rows) -> Rows:
        """Never a command twice: whoever consumed it may have died before the deletion. Commands are rare: ask."""
        consumed = set(self._doomed)
        for kind in CARRIERS:
            for page, _ in self._api.pages(self._path(kind), Glimpse, labelSelector=f"{CONSUMED}=true"):
                consumed.update(command for one in page for command in one.consumed or ())
        again = [stored.value.id for stored in found if stored.value.id in consumed]
        self._remove_consumed(again)
        return [stored for stored in found if stored.value.id not in consumed]

    def _delete_all(self, kind: type[Any], key: str) -> None:
        """Whatever people have called the object."""
        if not self._delete(kind, name_of(key)):
            for found in self._misnamed(kind):
                if key_in(kind, found) == key:
                    self._delete(kind, found.metadata.name)

    def _delete(self, kind: type[Any], name: str, uid: str = "") -> bool:
        """True if it was there."""
        options = {"preconditions": {"uid": uid}} if uid else None
        try:
            said = self._api.request("DELETE", self._path(kind, name), options)
        except ApiError as error:
            if (error.not_found and is_object(error, kind)) or (uid and error.conflict):
                return False
            raise
        self._cache.bury(kind, name, decode(Deleted, said).details.uid, FOR_EVER)
        return True

    # -- the watch

    def _begin_to_watch(self) -> None:
        with self._lock:
            if self._watches:
                return
            self._watches = {kind: self._watch(kind) for kind in KINDS}
        for watch in self._watches.values():
            watch.start()
        until = time.monotonic() + SYNC_S
        for watch in self._watches.values():
            watch.synced.wait(max(0.0, until - time.monotonic()))

    def _watch(self, kind: type[Any]) -> Reflector[Any]:
        params = {"labelSelector": LIVE} if kind in records.KEPT else {}
        item: type[Any] = Object if kind in records.PEOPLE else Glimpse
        return Reflector(
            self._api, self._path(kind), item, self._sink(kind), params=params, quiet_s=self._quiet_s,
            put_back=lambda: self._cache.forget(kind),
        )  # fmt: skip

    def _sink(self, kind: type[Any]) -> Callable[[Put[Any] | Gone | Synced], None]:
        def hear(told: Put[Any] | Gone | Synced) -> None:
            if isinstance(told, Gone):
                self._cache.bury(kind, told.name, told.uid, told.version)
            elif isinstance(told, Put):
                self._hear(kind, told.object)
            else:  # what we knew from before the watch, and went before it began
                watch = self._watches[kind]
                self._cache.bury_missing(kind, watch.there(), watch.version)

        return hear

    def _hear(self, kind: type[Any], found: Object | Glimpse) -> None:
        if isinstance(found, Object):
            self._try(kind, found)
        else:
            seen = seen_of(found.metadata, found.epoch, found.consumed)
            self._cache.learn(kind, found.metadata.name, seen, tried=False)

    # -- words

    def _open(self) -> None:
        if self._closed:
            raise StoreError("this store has been closed")

    def _path(self, kind: type[Any], name: str = "") -> str:
        return names.custom(self.namespace, KINDS[kind].plural, name)

    @contextmanager
    def _plain_words(self, what: str) -> Iterator[None]:
        try:
            yield
        except ApiError as error:
            kind = NotNow if error.not_now or error.passing else StoreError
            raise kind(f"{what}: {explained(error, self.namespace)}") from error
