"""An operator's sitting: what every command on the store shares. Where the store is, who is typing, which record is
meant, and when the controller will see it.

Called by nodes, cases, why, pause and evidence. It reads; only those commands write, and only Commands and Pauses.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from sickbay.cli.words import ago, plain
from sickbay.errors import ConfigError, UserError
from sickbay.model import Case, Ledger, NodeRecord, Pause, Recovery
from sickbay.ports import Store
from sickbay.settings import Settings

RUNNING_S = 180.0  # three idle passes (controller.idle_period_s): a controller silent for longer is not there
CLUSTER = "kubernetes"  # --store kubernetes: the custom resources of the cluster that KUBECONFIG names
LOOK_BACK = 1000  # ended records searched for an id

StoreOption = Annotated[
    str, typer.Option("--store", metavar="PATH", help="The store's file, or kubernetes; else from the settings.")
]
ConfigOption = Annotated[str, typer.Option("--config", metavar="FILE", help="Settings file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object a line, for machines.")]
WhyOption = Annotated[str, typer.Option("--why", metavar="TEXT", help="Your reason; it is kept in the journal.")]


@dataclass(frozen=True, slots=True)
class Sitting:
    """One sitting: an open store, a person, a moment."""

    store: Store
    by: str
    now: float

    def ledger(self) -> Ledger | None:
        return next((stored.value for stored in self.store.list(Ledger)), None)

    def cluster(self) -> str:
        ledger = self.ledger()
        return ledger.cluster if ledger else ""

    def controller(self) -> str:
        """Is anybody working on this store? In words."""
        ledger = self.ledger()
        if ledger is None or not ledger.last_pass:
            return "No controller has run on this store yet."
        silent = self.now - ledger.last_pass
        if silent > RUNNING_S:
            return f"No controller is running (its last pass was {ago(silent)})."
        return f"The controller is running (its last pass was {ago(silent)})."

    def when(self) -> str:
        """When a command written now will be taken up."""
        ledger = self.ledger()
        running = ledger is not None and ledger.last_pass and self.now - ledger.last_pass <= RUNNING_S
        return "It is taken up on the next pass." if running else "It is taken up when a controller runs."

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
        live = self.store.get(Case, case_id)
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
        yield Sitting(opened, person(os.environ), time.time())
    finally:
        opened.close()


def _opened(store: str, config: str) -> Store:
    if store and store != CLUSTER:
        return _file(Path(store).expanduser())
    settings = _by_settings(config, store)
    if settings.store == CLUSTER:
        from sickbay.controller.sites import open_store

        return open_store(settings)
    return _file(Path(settings.data_dir).expanduser() / "sickbay.db")


def _file(path: Path) -> Store:
    if not path.is_file():
        raise UserError(
            f"There is no store at {path}. A controller makes it when it first runs (`sickbay controller`; "
            "`sickbay demo` for a simulated fleet); if yours is elsewhere, say `--store PATH` or set data_dir; "
            "if it lives in a Kubernetes cluster, say `--store kubernetes`."
        )
    from sickbay.stores.sqlite import SqliteStore

    return SqliteStore(path)


def _by_settings(config: str, store: str) -> Settings:
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


def person(environ: Mapping[str, str]) -> str:
    """Who is typing: the person behind sudo first, for root is nobody in particular."""
    return environ.get("SUDO_USER") or environ.get("USER") or "unknown"


def say(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")
