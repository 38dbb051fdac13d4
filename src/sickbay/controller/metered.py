"""The doors with a meter on them: store, platform, notifiers. Each does what the inner one does, and is counted after.

Put around the real ones by controller/app.py. A wrapper changes no answer, catches nothing and waits for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from sickbay.controller.accounts import Accounts
from sickbay.errors import AlreadyExists, SickbayError, StaleWrite
from sickbay.model import Action, Case, Change, Done, Failed, Fleet, Node, Notice, Outcome, Recovery
from sickbay.ports import Names, Notifier, Platform, Store, Stored, Unread, V, Value

T = TypeVar("T")


class MeteredStore:
    """ports.Store over another one."""

    def __init__(self, inner: Store, accounts: Accounts) -> None:
        self._inner, self._accounts = inner, accounts
        self.lanes, self.frugal = inner.lanes, inner.frugal

    def get(self, kind: type[V], key: str) -> Stored[V] | None:
        return self._counted(lambda: self._inner.get(kind, key))

    def list(self, kind: type[V]) -> list[Stored[V]]:
        found = self._counted(lambda: self._inner.list(kind))
        self._accounts.know(stored.value for stored in found)
        return found

    def unread(self) -> Sequence[Unread]:
        return self._counted(self._inner.unread)

    def create(self, value: Value, epoch: int = 0) -> int:
        version = self._counted(lambda: self._inner.create(value, epoch))
        self._accounts.wrote(value, False)
        return version

    def commit(self, value: Value, expect: int, epoch: int, consumes: Sequence[str] = ()) -> int:
        version = self._counted(lambda: self._inner.commit(value, expect, epoch, consumes))
        self._accounts.wrote(value, False)
        return version

    def archive(self, value: Case | Recovery, expect: int, epoch: int, consumes: Sequence[str] = ()) -> None:
        self._counted(lambda: self._inner.archive(value, expect, epoch, consumes))
        self._accounts.wrote(value, True)

    def delete(self, kind: type[V], key: str) -> None:
        self._counted(lambda: self._inner.delete(kind, key))

    def history(
        self, kind: type[V], *, node: str = "", fault: str = "", since: float = 0.0, limit: int = 100
    ) -> Iterator[V]:
        return self._inner.history(kind, node=node, fault=fault, since=since, limit=limit)

    def last_ended(self, kind: type[V], key: str) -> V | None:
        return self._counted(lambda: self._inner.last_ended(kind, key))

    def prune(self, older_than: float) -> int:
        return self._counted(lambda: self._inner.prune(older_than))

    def missing(self, kind: type[V], keys: Collection[str]) -> Names:
        return self._counted(lambda: self._inner.missing(kind, keys))

    def moved(self, kind: type[V], key: str, version: int) -> bool:
        return self._inner.moved(kind, key, version)

    def token(self) -> int:
        return self._inner.token()

    def close(self) -> None:
        self._inner.close()

    def _counted(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (StaleWrite, AlreadyExists):
            self._accounts.store_errors.add("stale")
            raise
        except SickbayError:
            self._accounts.store_errors.add("failed")
            raise


class MeteredPlatform:
    """ports.Platform over another one: what each verb was answered."""

    def __init__(self, inner: Platform, accounts: Accounts) -> None:
        self._inner, self._accounts, self.verbs = inner, accounts, inner.verbs

    def observe(self) -> Fleet:
        return self._inner.observe()

    def watch(self, sink: Callable[[Change], None]) -> Callable[[], None]:
        return self._inner.watch(sink)

    def look(self, node: str) -> Node | None:
        return self._inner.look(node)

    def ask_after(self, node: str, instance: str) -> None:
        self._inner.ask_after(node, instance)

    def perform(self, action: Action) -> Outcome:
        outcome = self._inner.perform(action)
        self._accounts.actions.add(action.verb.value, type(outcome).__name__.lower())
        return outcome


class MeteredNotifier:
    """ports.Notifier over another one: delivered, failed (it will not take this one), later (it did not work)."""

    def __init__(self, inner: Notifier, accounts: Accounts) -> None:
        self._inner, self._accounts, self.name = inner, accounts, inner.name

    def send(self, notice: Notice) -> Outcome:
        try:
            outcome = self._inner.send(notice)
        except Exception:
            self._accounts.notices.add(self.name, "later")
            raise
        how = "delivered" if isinstance(outcome, Done) else "failed" if isinstance(outcome, Failed) else "later"
        self._accounts.notices.add(self.name, how)
        return outcome
