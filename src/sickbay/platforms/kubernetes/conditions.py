"""Node conditions that others set and the operator told us to believe: the Draino flow (originals 003.4).

`kubernetes.conditions` holds them in Draino's syntax, "Type" or "Type=Status,10m". One that stands long enough becomes
a finding of source "condition", whose ceiling is CORDON, DRAIN and VERIFY: nothing is ever rebooted because of one. How
long it has stood is what we have watched ourselves, never the setter's clock. Called by views. When it goes away that
is one passed observation, no more: the node is still verified before it returns (003.5 #9).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from sickbay.kube.names import CONDITION
from sickbay.kube.objects import Condition, NodeObject
from sickbay.model import Finding, Place, Severity, Status
from sickbay.platforms.kubernetes.memory import Memory

SOURCE = CHECK = "condition"
MOST_CHARS = 300  # of a message that somebody else wrote
SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Rule:
    type: str
    status: str = "True"
    after_s: float = 0.0

    @property
    def code(self) -> str:
        """condition.<Type>, in the letters that a code may have."""
        return "condition." + re.sub(r"[^A-Za-z0-9_-]+", "-", self.type)


@lru_cache(maxsize=64)
def rules(configured: tuple[str, ...]) -> tuple[Rule, ...]:
    """settings_rules has checked the syntax."""
    return tuple(_rule(text) for text in configured)


def _rule(text: str) -> Rule:
    kind, _, rest = text.partition("=")
    if not rest:
        return Rule(kind)
    status, _, span = rest.partition(",")
    return Rule(kind, status, float(span[:-1]) * SECONDS[span[-1]])


@dataclass(frozen=True, slots=True)
class Heard:
    """What the conditions of a node say, and after how many seconds they would say more without having changed."""

    findings: tuple[Finding, ...] = ()
    due_s: float | None = None


NOTHING = Heard()


def hear(node: NodeObject, wanted: Sequence[Rule], memory: Memory, *, told: bool) -> Heard:
    """`told`: our own agent's report says already what is wrong here. GPUProblem is then its word a second time; where
    the agent finds nothing, or is not there, GPUProblem is somebody else's (node-problem-detector's) and counts."""
    if not wanted:
        return NOTHING
    standing = {c.type: c for c in node.status.conditions or ()}
    judged = {rule.type for rule in wanted if rule.status == "Unknown"}  # where "Unknown" is a fault, not a doubt
    found, waits, passed, open_ends = [], [], [], False
    for rule in wanted:
        condition = standing.get(rule.type)
        if condition is None or (told and rule.type == CONDITION):
            continue
        held = memory.held_s(node.metadata.name, node.metadata.uid, condition)
        if condition.status == rule.status and held >= rule.after_s:
            found.append(_finding(node, rule, condition, Status.FAILED))
        elif condition.status == rule.status:
            open_ends = True
            waits.append(rule.after_s - held)
        elif condition.status == "Unknown" and rule.type in judged:
            continue  # another rule speaks of it
        elif condition.status == "Unknown":
            found.append(_finding(node, rule, condition, Status.UNKNOWN))
        else:
            passed.append(condition)
    if passed and not found and not open_ends:
        found.append(_all_clear(node, passed))
    return Heard(tuple(found), min(waits, default=None))


def _finding(node: NodeObject, rule: Rule, condition: Condition, status: Status) -> Finding:
    message = condition.message[:MOST_CHARS].strip()
    quote = f"{rule.type}={condition.status} {condition.reason[:80]}: {message}".rstrip(": ")
    if status is Status.UNKNOWN:
        reason = f"Whoever sets the node condition {rule.type} cannot tell how {node.metadata.name} is"
    else:
        reason = f"Node condition {rule.type} is {condition.status}" + (f": {message}" if message else "")
    severity = Severity.MONITOR  # the ladder is empty: see faults.toml, reported-condition
    return _made(node, rule.code, status, reason, (quote,), severity, _seconds(condition.last_transition_time))


def _all_clear(node: NodeObject, passed: Sequence[Condition]) -> Finding:
    """One for all of them, as late as the last to turn: one that has passed must not clear another that stands."""
    names = ", ".join(sorted(c.type for c in passed))
    turned = max(_seconds(c.last_transition_time) for c in passed)
    return _made(
        node, "", Status.OK, f"No condition stands against this node any more: {names}", (), Severity.NONE, turned
    )


def _made(
    node: NodeObject, code: str, status: Status, reason: str, evidence: tuple[str, ...], severity: Severity, turned: int
) -> Finding:
    """The id is the transition's: the same after a restart of ours, a new one when the condition turns again."""
    boot = node.status.node_info.boot_id if node.status.node_info else ""
    return Finding(
        id=f"{boot or node.metadata.uid}/{turned}", source=SOURCE, check=CHECK, place=Place(node.metadata.name),
        status=status, code=code, reason=reason, evidence=evidence, severity=severity, boot_id=boot, at=float(turned),
    )  # fmt: skip


@lru_cache(maxsize=8_192)
def _seconds(stamp: str) -> int:
    """lastTransitionTime as a number that grows. By the setter's clock: compared with itself only."""
    try:
        return int(datetime.fromisoformat(stamp).timestamp())
    except ValueError:
        return 0
