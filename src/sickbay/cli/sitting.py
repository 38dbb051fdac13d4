"""An operator's sitting: what every command on the store shares. Where the store is, who is typing, which record is
meant, and when the controller will see it.

Called by nodes, cases, why, pause and evidence. It reads; only those commands write, and only Commands and Pauses.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from sickbay.cli.person import person
from sickbay.cli.words import ago, plain
from sickbay.controller import presence
from sickbay.controller.presence import Presence
from sickbay.errors import ApiError, ConfigError, Unreadable, UserError
from sickbay.model import Case, Ledger, NodeRecord, Pause, Recovery
from sickbay.ports import Store, Unread
from sickbay.settings import Settings

HANGS_S = 900.0  # a leader writes down every few minutes that it is there: one silent for so long does not get on
CLUSTER = "kubernetes"  # --store kubernetes: the custom resources of the cluster that KUBECONFIG names
LOOK_BACK = 1000  # ended records searched for an id

StoreOption = Annotated[
    str, typer.Option("--store", metavar="PATH", help="The store's file, or kubernetes; else from the settings.")
]
ConfigOption = Annotated[str, typer.Option("--config", metavar="FILE", help="Settings file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object a line, for machines.")]
WhyOption = Annotated[str, typer.Option("--why", metavar="TEXT", help="Your reason; it is kept in the journal.")]


@dataclass(frozen=True, slots=True)
class Known:
    """Names of nodes and pools. `all`: is there no other? A store on a file has only heard of those that were ill."""

    nodes: frozenset[str]
    pools: frozenset[str]
    all: bool = False


@dataclass(frozen=True, slots=True)
class Sitting:
    """One sitting: an open store, a person, a moment."""

    store: Store
    author: Callable[[], str]
    now: float
    look: Callable[[], Presence] = lambda: Presence(None, "nobody was asked")
    roll: Callable[[], Known | None] = lambda: None  # every node there is, where somebody can tell

    @property
    def by(self) -> str:
        """Whom the store's keeper takes the person for: asked only by who writes, as it may cost a call."""
        return self.author()

    def ledger(self) -> Ledger | None:
        return next((stored.value for stored in self.store.list(Ledger)), None)

    def cluster(self) -> str:
        ledger = self.ledger()
        return ledger.cluster if ledger else ""

    def controller(self) -> str:
        """Is anybody working on this store? In words. The lead's lock says so, not when something was last written."""
        seen, ledger = self.look(), self.ledger()
        silent = self.now - ledger.last_pass if ledger and ledger.last_pass else None
        last = f"its last pass on record was {ago(silent)}" if silent is not None else "it has not noted a pass yet"
        if seen.leads is None:
            return f"Whether a controller is running cannot be seen ({plain(seen.who)}); {last}."
        if not seen.leads:
            noted = last if silent is not None else "none has noted a pass on this store yet"
            return (
                f"No controller leads just now ({noted}): none is running, or one is in trouble (a full disk) and "
                "tries again every few seconds. Its log says which."
            )
        if silent is not None and silent > HANGS_S:
            return f"A controller holds the lead ({plain(seen.who)}) and does not get on: {last}. Look at its log."
        return f"The controller is running ({plain(seen.who)}; {last})."

    def when(self) -> str:
        """When a command written now will be taken up."""
        return "It is taken up on the next pass." if self.look().leads else "It is taken up when a controller runs."

    def unread(self) -> Sequence[Unread]:
        """Records that cannot be read, of every kind."""
        return self.store.unread()

    def watch(self) -> float:
        """The watch time of the last pass on record."""
        ledger = self.ledger()
        return ledger.watch_time if ledger else 0.0

    def wall(self, watch: float) -> float:
        """A watch time as a wall time, as well as it is known: watch time stands still while nobody watches."""
        ledger = self.ledger()
        return ledger.last_pass + watch - ledger.watch_time if ledger else self.now

    def pauses(self) -> list[Pause]:
        """The pauses that hold at this moment."""
        live = (stored.value for stored in self.store.list(Pause))
        return [pause for pause in live if pause.until is None or pause.until > self.now]

    def cases(self) -> list[Case]:
        return [stored.value for stored in self.store.list(Case)]

    def case(self, case_id: str) -> tuple[Case, bool]:
        """The case of this id and whether it is still open; UserError with the nearest ids if there is none."""
        try:
            live = self.store.get(Case, case_id)
        except Unreadable as error:
            raise UserError(
                f"Case {plain(case_id)} cannot be read, so it is left alone. {plain(str(error))}"
            ) from error
        if live is not None:
            return live.value, True
        node = case_id.rpartition(".")[0]
        ended = (case for case in self.store.history(Case, node=node, limit=LOOK_BACK) if case.id == case_id)
        found = next(ended, None) if node else None
        if found is None:
            raise UserError(f"There is no case {plain(case_id)}. {self._meant(case_id)}")
        return found, False

    def _meant(self, case_id: str) -> str:
        open_here = [case.id for case in self.cases() if case.node == case_id]
        if open_here:
            return f"The open case of node {plain(case_id)} is {open_here[0]}."
        ended = (case.id for case in self.store.history(Case, limit=LOOK_BACK))
        return nearest(case_id, [*(case.id for case in self.cases()), *ended], "`sickbay cases --all` lists them.")

    def records(self) -> dict[str, NodeRecord]:
        """What is remembered of each node; while it has an open case, that carries it."""
        known = {stored.value.node: stored.value for stored in self.store.list(NodeRecord)}
        return known | {case.node: case.record for case in self.cases() if case.record is not None}

    def known(self) -> Known:
        """The nodes and pools there are; failing that, those that this store has heard of."""
        nodes = self.records().keys() | {case.node for case in self.cases()}
        return self.roll() or Known(frozenset(nodes), frozenset(case.pool for case in self.cases()))

    def names(self) -> list[str]:
        """Every node and job this store has heard of."""
        nodes = self.records().keys() | {case.node for case in self.cases()}
        jobs = {stored.value.job for stored in self.store.list(Recovery)}
        return sorted(nodes) + sorted(jobs)


def nearest(wrong: str, known: Iterable[str], otherwise: str) -> str:
    """ "Did you mean ...?" with the nearest names we know."""
    close = get_close_matches(wrong, list(dict.fromkeys(known)), n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(plain(name) for name in close)}?" if close else otherwise


@contextmanager
def sit_down(store: str, config: str) -> Iterator[Sitting]:
    """Open the store a person means. It must be there: a command never makes one."""
    opened = _opened(store, config)
    try:
        yield Sitting(opened.store, opened.author, time.time(), opened.look, opened.roll)
    finally:
        opened.store.close()


class _Opened(NamedTuple):
    """A store, how to see who leads on it, how to learn who writes to it, and how to see which nodes there are."""

    store: Store
    look: Callable[[], Presence]
    author: Callable[[], str] = partial(person, os.environ)
    roll: Callable[[], Known | None] = lambda: None


def _opened(store: str, config: str) -> _Opened:
    path = Path(store).expanduser()
    if not store or store == CLUSTER:
        settings = settings_for(config, store)
        if settings.store == CLUSTER:
            return _in_cluster(settings)
        path = Path(settings.data_dir).expanduser() / "sickbay.db"
    return _Opened(_file(path), lambda: presence.by_lock(path.parent))


def _in_cluster(settings: Settings) -> _Opened:
    from sickbay.controller.sites import open_store

    look = partial(presence.by_lease, settings.kubernetes, settings.cluster, time.time())
    return _Opened(open_store(settings), look, partial(_who, settings), partial(_called, settings))


def _who(settings: Settings) -> str:
    from sickbay.kube.api import open_api
    from sickbay.kube.whoami import username

    with closing(open_api(settings.kubernetes.kubeconfig, settings.kubernetes.context)) as api:
        return username(api)


def _called(settings: Settings) -> Known | None:
    """None where we may not look: then nobody is told that a name is wrong."""
    from sickbay.controller.sites import RealClock
    from sickbay.kube.api import open_api
    from sickbay.kube.objects import NodeObject
    from sickbay.platforms.kubernetes.site import site_of
    from sickbay.platforms.kubernetes.views import pool_of

    kube = settings.kubernetes
    try:
        with closing(open_api(kube.kubeconfig, kube.context)) as api:
            nodes, site = api.list("/api/v1/nodes", NodeObject), site_of(api, kube, RealClock())
            pools = {pool_of(site, node) for node in nodes}
    except ApiError:
        return None
    return Known(frozenset(node.metadata.name for node in nodes), frozenset(pools), all=True)


def _file(path: Path) -> Store:
    if not path.is_file():
        raise UserError(
            f"There is no store at {path}. A controller makes it when it first runs (`sickbay controller`; "
            "`sickbay demo` for a simulated fleet); if yours is elsewhere, say `--store PATH` or set data_dir; "
            "if it lives in a Kubernetes cluster, say `--store kubernetes`."
        )
    from sickbay.stores.sqlite import SqliteStore

    return SqliteStore(path)


def settings_for(config: str, store: str) -> Settings:
    try:
        settings = _settings(config)
    except ConfigError as error:  # settings in disorder must not keep anybody from `sickbay pause`
        raise UserError(f"{error}\nWith `--store PATH` this command does not need the settings.") from error
    return replace(settings, store=store or settings.store)


def approval(config: str, pool: str) -> tuple[str, ...]:
    """The verbs that wait for a person in this pool."""
    return _settings(config).policy_for(pool).approval


def _settings(config: str) -> Settings:
    from sickbay.settings_load import load

    return load(config or None).settings


def say(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")
