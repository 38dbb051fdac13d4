"""What this process knows of its custom resources without asking: versions, epochs, people's wishes, and the token.

Fed by the store's own reads and writes and, once somebody asks for the token, by a watch on each kind; a write and its
echo count once. Records that decide who owns what are never answered from here: only versions and epochs are kept of
them, and a version's epoch never changes. It must never ask the API server itself.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sickbay.kube.objects import Meta
from sickbay.ports import Stored, Value

MOST_TOMBS = 4096
FOR_EVER = 2**63  # a version later than any: of what was deleted

Where = tuple[type[Any], str]  # kind and object name


@dataclass(frozen=True, slots=True)
class Seen:
    """One object at one version. `stored` only of people's records."""

    uid: str
    version: int
    epoch: int
    consumed: tuple[str, ...] = ()
    stored: Stored[Any] | None = None


class Cache:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[Where, Seen] = {}
        self._people: dict[type[Any], dict[str, Stored[Any]]] = {}
        self._tombs: OrderedDict[Where, tuple[str, int]] = OrderedDict()  # (uid, version): older news of it is no news
        self._untried: set[Where] = set()  # written by somebody else, and nobody has read what it says
        self._token = 0

    @property
    def token(self) -> int:
        return self._token

    def look(self, kind: type[Value], name: str) -> Seen | None:
        return self._seen.get((kind, name))

    def learn(self, kind: type[Value], name: str, seen: Seen, *, tried: bool = True) -> None:
        """Somebody's write, heard for the first time; an echo or older news changes nothing. `tried`: what it says was
        read, or written, by us."""
        where = (kind, name)
        with self._lock:
            if tried:
                self._untried.discard(where)
            known = self._seen.get(where)
            if known is not None and known.version >= seen.version:
                return
            uid, version = self._tombs.get(where, ("", 0))
            if uid == seen.uid and seen.version <= version:
                return
            self._seen[where] = seen
            if not tried:
                self._untried.add(where)
            if seen.stored is not None:
                self._people.setdefault(kind, {})[name] = seen.stored
            else:
                self._people.get(kind, {}).pop(name, None)  # it cannot be read any more
            self._token += 1

    def settle(self, kind: type[Value], name: str, version: int, consumed: Sequence[str]) -> None:
        """Of the version we wrote, the commands that are not yet known to be deleted."""
        where = (kind, name)
        with self._lock:
            known = self._seen.get(where)
            if known is not None and known.version == version:
                self._seen[where] = Seen(known.uid, version, known.epoch, tuple(consumed), known.stored)

    def bury(self, kind: type[Value], name: str, uid: str, version: int = FOR_EVER) -> None:
        """Deleted or archived, by anybody; counted once however often it is heard."""
        where = (kind, name)
        with self._lock:
            buried, at = self._tombs.get(where, ("", 0))
            known = self._seen.get(where)
            if known is not None and (known.uid != uid or known.version > version):
                return  # another one of that name is there by now
            if buried == uid and (at >= version or known is None):
                self._tombs[where] = (uid, max(at, version))
                return
            self._tombs[where] = (uid, version)
            while len(self._tombs) > MOST_TOMBS:
                self._tombs.popitem(last=False)
            self._seen.pop(where, None)
            self._untried.discard(where)
            self._people.get(kind, {}).pop(name, None)
            self._token += 1

    def bury_missing(self, kind: type[Value], there: set[str], version: int) -> None:
        """After a whole list: what it did not show, and was older than it."""
        with self._lock:
            missing = [(name, seen) for (of, name), seen in self._seen.items() if of is kind and name not in there]
        for name, seen in missing:
            self.bury(kind, name, seen.uid, version)

    def forget(self, kind: type[Any]) -> None:
        """The API server was put back to an earlier state: what we knew of a later one is not true any more."""
        with self._lock:
            for known in (self._seen, self._tombs):
                for where in [where for where in known if where[0] is kind]:
                    del known[where]
            self._untried = {where for where in self._untried if where[0] is not kind}
            self._people.pop(kind, None)
            self._token += 1

    def untried(self) -> list[Where]:
        with self._lock:
            return list(self._untried)

    def people(self, kind: type[Value]) -> list[Stored[Any]]:
        with self._lock:
            return list(self._people.get(kind, {}).values())


def seen_of(meta: Meta, epoch: int, consumed: Sequence[str] | None, stored: Stored[Any] | None = None) -> Seen:
    return Seen(meta.uid, meta.version, epoch, tuple(consumed or ()), stored)
