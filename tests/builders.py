"""Builders of the nouns: `a_case(phase=Phase.DRAINING)`. Every argument a test writes is one the test is about.

Used by tests/core and tests/controller. The catalog is the real one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sickbay.catalog import load
from sickbay.core import plan
from sickbay.core.admit import OUT, Request
from sickbay.core.turn import Context, Now
from sickbay.model import (
    Action,
    Case,
    Checkpoint,
    Command,
    Diagnosis,
    Entry,
    Finding,
    Gpu,
    Job,
    JobPhase,
    Latch,
    Ledger,
    Node,
    NodeRecord,
    Past,
    Phase,
    Place,
    Recovery,
    RecoveryPhase,
    Seat,
    Severity,
    Status,
    Verb,
    When,
)
from sickbay.settings import Policy

CATALOG = load()
EVERY_VERB = frozenset(Verb)
GPU = "0000:3b:00"  # the device most tests are about
BOOT = "boot-a"
WALL = 1_800_000_000.0  # wall time is for people: far from watch time, so that a mix-up shows


def a_policy(**changed: Any) -> Policy:
    """May do everything; REPLACE still asks a person."""
    return replace(Policy(max_verb="REPLACE"), **changed)


def a_context(now: float = 1_000.0, policy: Policy | None = None, verbs: frozenset[Verb] = EVERY_VERB) -> Context:
    return Context(CATALOG, policy or a_policy(), verbs, Now(now, WALL + now))


def a_node(name: str = "n1", **changed: Any) -> Node:
    """Ready, empty, healthy, open for work."""
    node = Node(name, uid=f"uid-{name}", instance=f"i-{name}", boot_id=BOOT, version=10, gpus_expected=8)
    return replace(node, **changed)


def a_gpu(serial: str = "S1", pci: str = GPU) -> Gpu:
    return Gpu(f"GPU-{serial}", serial, pci, 0)


def a_finding(
    code: str = "xid.79", n: int = 1, *, node: str = "n1", device: str = GPU, boot: str = BOOT, **changed: Any
) -> Finding:
    """What an agent says; `n` is its sequence number within the boot."""
    row = CATALOG.code(code)
    finding = Finding(
        f"{boot}/{n}", "agent", "kernel-log", Place(node, device), Status.FAILED, code, f"{code} was seen",
        (f"the line that says {code}",), row.severity or CATALOG.faults[row.fault].severity if row else Severity.NONE,
        boot, received_at=WALL,
    )  # fmt: skip
    return replace(finding, **changed)


def a_pass(check: str = "nvidia-smi", n: int = 1, *, boot: str = BOOT, **changed: Any) -> Finding:
    finding = Finding(f"{boot}/{n}", "agent", check, Place("n1"), Status.OK, "", "nothing wrong", boot_id=boot)
    return replace(finding, **changed)


def a_blind(check: str = "nvidia-smi", code: str = "tool.missing", n: int = 1, **changed: Any) -> Finding:
    """UNKNOWN: the instrument could not look."""
    finding = a_finding(code, n, device="", check=check, status=Status.UNKNOWN)
    return replace(finding, **changed)


def a_latch(fault: str = "gpu-lost", *, device: str = GPU, n: int = 1, boot: str = BOOT, **changed: Any) -> Latch:
    row = CATALOG.faults[fault]
    code = next((c.code for c in CATALOG.codes.values() if c.fault == fault), "")
    latch = Latch(
        fault, code, Place("n1", device), f"{boot}/{n}", boot, 0.0, 0.0, row.severity, count=9, check="kernel-log",
        because=(f"the line that says {fault}",),
    )  # fmt: skip
    return replace(latch, **changed)


def a_past(fault: str = "gpu-lost", *, rung: Verb | None = None, flap: bool = False, **changed: Any) -> Past:
    return replace(Past("n1.1", fault, "", rung, "RESOLVED", flap, 0.0, WALL), **changed)


def a_record(*latches: Latch, **changed: Any) -> NodeRecord:
    record = NodeRecord("n1", "uid-n1", latched=latches, boot_id=BOOT, instance="i-n1")
    return replace(record, **changed)


def a_diagnosis(fault: str = "gpu-lost", *, device: str = GPU, **changed: Any) -> Diagnosis:
    row = CATALOG.faults[fault]
    diagnosis = Diagnosis(
        fault, Place("n1", device), row.severity, row.when, row.confidence, (f"the line that says {fault}",), WALL
    )
    return replace(diagnosis, **changed)


def a_case(phase: Phase = Phase.WAITING, fault: str = "gpu-lost", node: str = "n1", **changed: Any) -> Case:
    """Of one fault, with the plan the catalog makes for it; its clock stands at 1,000 and its time is not up soon."""
    diagnoses = changed.pop("diagnoses", (a_diagnosis(fault),))
    case = Case(
        f"{node}.1", node, f"uid-{node}", "default", diagnoses, plan.make(diagnoses, CATALOG), phase, 7, WALL, 1_000.0,
        None if phase is Phase.ESCALATED else 1_000_000.0, instance=f"i-{node}", first_evidence_at=WALL,
        journal=(Entry(0, "OPENED", WALL, "sickbay", "it was seen"),),
    )  # fmt: skip
    return replace(case, **changed)


def an_action(verb: Verb = Verb.REBOOT, key: str = "n1.1/7", **changed: Any) -> Action:
    return replace(Action(key, verb, Place("n1")), **changed)


def a_command(verb: str, /, *, why: str = "because I say so", **args: str) -> Command:
    return Command(f"cmd-{verb}", verb, "n1.1", "ann", why, WALL, args)


def a_request(case: str = "n1.1", **changed: Any) -> Request:
    """A case that wants its node out of service for an urgent fault."""
    request = Request(
        case, case.rpartition(".")[0], OUT, Verb.CORDON, "default", "", "", When.NOW, Severity.REBOOT, 0.0,
        down=False, hurts=False, approved=False, in_window=True,
    )  # fmt: skip
    return replace(request, **changed)


def a_seat(case: str = "n1.1", kind: str = OUT, verb: Verb = Verb.CORDON, **changed: Any) -> Seat:
    seat = Seat(case, case.rpartition(".")[0], kind, verb.value, "default", "", "", since=0.0)
    return replace(seat, **changed)


def a_ledger(*seats: Seat, **changed: Any) -> Ledger:
    return replace(Ledger(epoch=1, seats=seats), **changed)


def a_job(phase: JobPhase = JobPhase.RUNNING, nodes: tuple[str, ...] = ("n1", "n2"), **changed: Any) -> Job:
    job = Job(
        "llama", nodes, phase, attempt=1, step=100, checkpoint=Checkpoint(80, WALL - 60.0, 1), ranks=len(nodes),
        rank_nodes=nodes, owner="ann", version=1,
    )  # fmt: skip
    return replace(job, **changed)


def a_recovery(phase: RecoveryPhase = RecoveryPhase.RUNNING, **changed: Any) -> Recovery:
    live = {RecoveryPhase.RUNNING: None}
    recovery = Recovery(
        "llama", phase, 1, 5, 1_000.0, live.get(phase, 1_000_000.0), ("n1", "n2"), job_step=100, progressed=1_001.0,
        checkpoint_step=40, journal=(Entry(0, "ADOPTED", WALL, "sickbay", "llama runs on 2 nodes"),),
    )  # fmt: skip
    return replace(recovery, **changed)
