"""A store with something in it, and the command run in this process as a person would run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sickbay.cli import main
from sickbay.controller.leader import FileLeader
from sickbay.controller.presence import LOCK
from sickbay.model import (
    Case,
    Diagnosis,
    Entry,
    Ledger,
    Phase,
    Place,
    Plan,
    Recovery,
    RecoveryPhase,
    Rung,
    Severity,
    Verb,
    When,
)
from sickbay.stores.sqlite import SqliteStore
from tests.stores.conftest import SPOILERS

XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Bay:
    """A store on disk and the command that works on it."""

    path: Path
    run: Callable[..., Said]

    def put(self, *values: Any) -> None:
        store = SqliteStore(self.path)
        for value in values:
            store.create(value)
        store.close()

    @contextmanager
    def led(self) -> Iterator[None]:
        """A controller holds the lead meanwhile."""
        leader = FileLeader(self.path.parent / LOCK)
        assert leader.acquire()
        try:
            yield
        finally:
            leader.release()

    def spoil(self, *values: Any) -> None:
        """Put them as a newer Sickbay would have written them."""
        self.put(*values)
        store = SqliteStore(self.path)
        for value in values:
            SPOILERS["sqlite"](store).spoil(value)
        store.close()

    def end(self, case: Case) -> None:
        """Put a case straight into the archive."""
        store = SqliteStore(self.path)
        store.archive(case, store.create(replace(case, phase=Phase.WAITING)), 0)
        store.close()

    def all(self, kind: Any) -> list[Any]:
        store = SqliteStore(self.path)
        found = [stored.value for stored in store.list(kind)]
        store.close()
        return found


def run_command(capsys: pytest.CaptureFixture[str], *args: str) -> Said:
    with pytest.raises(SystemExit) as stop:
        main(args)
    captured = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return Said(stop.value.code, captured.out, captured.err)


def a_case(case_id: str = "gpu-17.3", phase: Phase = Phase.QUEUED, **changed: Any) -> Case:
    node = case_id.rpartition(".")[0]
    lost = Diagnosis(
        "gpu-lost",
        Place(node, "0000:3b:00"),
        Severity.REBOOT,
        When.NOW,
        0.95,
        (XID_79,),
        1000.0,
        "xid.79",
        part="SN-42",
    )
    ladder = tuple(Rung(verb, 900.0) for verb in (Verb.REBOOT, Verb.POWER_CYCLE, Verb.REPLACE))
    opened = Entry(0, "CONFIRMED", 1000.0, "sickbay", "the GPU fell off the bus", "WAITING")
    case = Case(
        id=case_id,
        node=node,
        uid="u1",
        pool="train",
        diagnoses=(lost,),
        plan=Plan(ladder, ("nvidia-smi",)),
        phase=phase,
        step=4,
        opened_at=1000.0,
        entered=0.0,
        deadline=None,
        instance="i-0123",
        journal=(opened,),
    )
    return replace(case, **changed)


def a_recovery(job: str = "llama", **changed: Any) -> Recovery:
    hit = Entry(0, "STALLED", 1000.0, "sickbay", "no step for 5 min; rank 3 is silent", "STALLED")
    return replace(Recovery(job, RecoveryPhase.STALLED, 1, 1, 0.0, None, journal=(hit,)), **changed)


def a_ledger(last_pass: float, **changed: Any) -> Ledger:
    return replace(Ledger(epoch=1, last_pass=last_pass, cluster="west"), **changed)
