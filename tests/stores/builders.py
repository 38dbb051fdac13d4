"""Small records for store tests: only what the test is about is spelled out."""

from __future__ import annotations

from dataclasses import replace

from sickbay.model import (
    Case,
    Command,
    Diagnosis,
    Entry,
    Ledger,
    NodeRecord,
    Part,
    Pause,
    Phase,
    Place,
    Plan,
    Recovery,
    RecoveryPhase,
    Seat,
    Severity,
    When,
)
from sickbay.ports import Store


def a_diagnosis(fault: str = "gpu-lost", node: str = "n1", because: tuple[str, ...] = ("NVRM: Xid 79",)) -> Diagnosis:
    return Diagnosis(fault, Place(node, "0000:3b:00"), Severity.REBOOT, When.NOW, 0.95, because, at=100.0)


def an_entry(step: int, at: float = 100.0, why: str = "the GPU fell off the bus") -> Entry:
    return Entry(step=step, event="CONFIRMED", at=at, by="sickbay", why=why, phase="WAITING")


def a_case(case: str = "n1.1", *, fault: str = "gpu-lost", ended: float = 100.0, entries: int = 1) -> Case:
    node = case.rpartition(".")[0]
    return Case(
        id=case,
        node=node,
        uid="uid-1",
        pool="default",
        diagnoses=(a_diagnosis(fault, node),),
        plan=Plan(),
        phase=Phase.WAITING,
        step=1,
        opened_at=50.0,
        entered=0.0,
        deadline=None,
        journal=tuple(an_entry(step, ended) for step in range(entries)),
    )


def a_recovery(job: str = "llama", *, nodes: tuple[str, ...] = ("n1", "n2"), ended: float = 100.0) -> Recovery:
    return Recovery(job, RecoveryPhase.RUNNING, 0, 0, 0.0, None, nodes=nodes, journal=(an_entry(0, ended),))


def a_command(name: str = "c1") -> Command:
    return Command(name, "approve", "n1.1", by="ann", why="seen it", at=1.0)


def a_pause(scope: str = "fleet") -> Pause:
    return Pause(scope, by="ann", why="maintenance", since=1.0)


def a_seat(case: str) -> Seat:
    return Seat(case, case.rpartition(".")[0], "out", "CORDON", "default", "r1", "d1", since=0.0)


ONE_OF_EACH = (a_case(), a_recovery(), NodeRecord("n1", last_n=1), Part("S1"), a_command(), a_pause(), Ledger(epoch=1))


def take_a_seat(store: Store, case: str, seats: int) -> bool:
    """What an admission does: read the Ledger, take a seat if one is free, write; look again if somebody was faster."""
    from sickbay.errors import StaleWrite

    while True:
        stored = store.get(Ledger, "")
        assert stored is not None
        if len(stored.value.seats) >= seats:
            return False
        ledger = replace(stored.value, seats=(*stored.value.seats, a_seat(case)))
        try:
            store.commit(ledger, stored.version, epoch=1)
        except StaleWrite:
            continue
        return True
