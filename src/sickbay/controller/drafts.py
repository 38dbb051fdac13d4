"""What one pass wants to write, gathered and written at its end: each record once, however often it moved.

Owned by controller/records.py. The order keeps every promise of the store: seats (the Ledger) and what we remember of
nodes first, then cases that end, then cases that live; within one of these, side by side where the store allows it.
A draft that may wait (a delivered notice, a phase that lasts a moment) becomes one with the next write of its record,
or is written when its patience ends. It must never decide what is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import sleep
from typing import Any, TypeVar

from sickbay.core.keeping import NOW
from sickbay.errors import AlreadyExists, NotLeader, NotNow, StaleWrite, StoreError, Unreadable
from sickbay.model import Case, Ledger, NodeRecord, Recovery
from sickbay.ports import Store

Written = Ledger | NodeRecord | Case | Recovery
WAVES = 3
PAUSES_S = (0.2, 1.0)  # a store that cannot do it now is asked again: one hiccup must not cost the lead

T = TypeVar("T")


def patiently(ask: Callable[[], T]) -> T:
    """Ask; while the store cannot do it now, ask again a moment later. Only for what may be asked twice."""
    for pause in PAUSES_S:
        try:
            return ask()
        except NotNow:
            sleep(pause)
    return ask()


@dataclass(slots=True)
class Draft:
    value: Written
    version: int | None  # of the record it replaces; None: there is none yet
    ended: bool = False
    consumes: tuple[str, ...] = ()
    patience: float | None = NOW  # for how long it may wait for the next write of its record; None: `due` says it
    due: float = math.inf  # watch time at which it is written at the latest
    first: list[Callable[[], None]] = field(default_factory=list)  # written before it: what it alone knows until then

    def is_due(self, watch: float) -> bool:
        """Asked by each flush. What was put since the last one has its own patience, counted from now."""
        if self.patience is not None:
            self.due, self.patience = min(self.due, watch + self.patience), None
        return watch >= self.due

    def falls_due(self, watch: float) -> float:
        """When it is written at the latest; what was put since the last flush counts from now."""
        return self.due if self.patience is None else min(self.due, watch + self.patience)

    def hurry(self, patience: float) -> None:
        """More was put: of several that may wait, the most impatient counts."""
        self.patience = patience if self.patience is None else min(self.patience, patience)

    @property
    def owner(self) -> str:
        """The node or job that it is about; "" for the Ledger."""
        if isinstance(self.value, Ledger):
            return ""
        return self.value.job if isinstance(self.value, Recovery) else self.value.node

    @property
    def key(self) -> str:
        """By which the store knows it."""
        if isinstance(self.value, Ledger):
            return "ledger"
        return self.value.id if isinstance(self.value, Case) else self.owner

    @property
    def wave(self) -> int:
        if isinstance(self.value, Ledger | NodeRecord):
            return 0
        return 1 if self.ended else 2

    def write(self, store: Store, epoch: int) -> int:
        """The new version; 0 once it is in the archive."""
        if self.version is None:
            self.version = store.create(self.value, epoch)
            if not self.ended and not self.consumes:
                return self.version
        if self.ended and isinstance(self.value, Case | Recovery):
            store.archive(self.value, self.version, epoch, self.consumes)
            return 0
        return store.commit(self.value, self.version, epoch, self.consumes)


class Writers:
    """As many hands as the store can use: one for a file, several for a server across a network."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pool: ThreadPoolExecutor | None = None

    def write(self, drafts: Sequence[Draft], epoch: int) -> list[int | Exception | None]:
        """A version for each, None where somebody else had moved the record; or what it raised, where it cannot be
        written at all: that is about this record, and the others are written."""
        if self._store.lanes == 1 or len(drafts) < 2:
            return [self._one(draft, epoch) for draft in drafts]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._store.lanes, thread_name_prefix="write")
        return list(self._pool.map(lambda draft: self._one(draft, epoch), drafts))

    def _one(self, draft: Draft, epoch: int) -> int | Exception | None:
        try:
            return self._patiently(draft, epoch)
        except (NotLeader, StoreError):
            raise
        except Exception as error:
            return error

    def _patiently(self, draft: Draft, epoch: int) -> int | None:
        tries = 0

        def write() -> int | None:
            nonlocal tries
            tries += 1
            try:
                return draft.write(self._store, epoch)
            except (StaleWrite, AlreadyExists):
                return self._ours(draft, epoch) if tries > 1 else None
            except Unreadable:  # what is there now is for a person
                return None

        return patiently(write)

    def _ours(self, draft: Draft, epoch: int) -> int | None:
        """Was it our own earlier try that moved the record, and only its answer that got lost? If in doubt it was not:
        then the record is read and decided again, which does no harm."""
        if draft.ended or (draft.version is None and draft.consumes):
            return None
        kind: type[Any] = type(draft.value)
        try:
            stored = self._store.get(kind, draft.key)
        except Unreadable:
            return None
        return stored.version if stored is not None and (stored.value, stored.epoch) == (draft.value, epoch) else None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
