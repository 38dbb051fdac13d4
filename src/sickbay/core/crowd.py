"""The crowd before a full limit: one message about all who wait, who fills it and what lets them in.

Asked by controller/crowd.py. It grants nothing: who gets a place is for core/admit.py to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sickbay.core.admit import WINDOWS
from sickbay.core.naming import named
from sickbay.model import Notice

SETTLE_S = 60.0  # a place that comes free within a minute is worth no message, and a crowd needs so long to gather
RENEW_S = 3_600.0
REMIND_S = 86_400.0
NEWS = 0.25  # newcomers, as a share of those whom the last message was about


@dataclass(frozen=True, slots=True)
class Waiter:
    """A case that was refused because a limit is full; its node is sick and takes work."""

    case: str
    node: str
    urgent: bool  # its fault cannot wait


@dataclass(frozen=True, slots=True)
class Full:
    """A limit without a free place, and who is in it."""

    scope: str
    setting: str
    most: int
    out: Sequence[str]
    stuck: Sequence[str] = ()  # cases in it that only a person moves
    others: Sequence[str] = ()  # nodes in it that are out by nobody's case
    away: Sequence[str] = ()  # nodes in it that are away together with many


@dataclass(frozen=True, slots=True)
class Told:
    at: float  # watch time
    nodes: frozenset[str]
    urgent: frozenset[str]


def told(waiting: Sequence[Waiter], at: float) -> Told:
    return Told(at, frozenset(w.node for w in waiting), frozenset(w.node for w in waiting if w.urgent))


def is_news(before: Told | None, now: Told) -> bool:
    """The first fault that cannot wait is told at once; else an hour passes, and only more who wait are news."""
    if before is None or (now.urgent and not before.urgent):
        return True
    if now.at - before.at < RENEW_S:
        return False
    more = len(now.nodes - before.nodes) >= max(1.0, NEWS * len(before.nodes))
    return more or bool(now.urgent - before.urgent) or now.at - before.at >= REMIND_S


def notice(full: Full, waiting: Sequence[Waiter], watch: float, wall: float) -> Notice:
    """Those that cannot wait are named first."""
    urgent = [w.node for w in waiting if w.urgent]
    nodes = [*sorted(urgent), *sorted(w.node for w in waiting if not w.urgent)]
    level = "urgent" if urgent else "warning"
    title = f"{full.scope}: no more nodes may be taken out, {_count(nodes, 'sick node')} {_verb(nodes, 'wait')}"
    body = "\n".join([_who(nodes, len(urgent)), _why(full), *_todo(full)])
    return Notice(f"full/{full.scope}/{level}/{int(watch // RENEW_S)}", level, title, body, "", wall)


def _who(nodes: Sequence[str], urgent: int) -> str:
    hurry = f", {urgent} of them with a fault that cannot wait (named first)" if urgent else ""
    return f"{_count(nodes, 'sick node')} {_verb(nodes, 'stay')} in service and may fail the jobs there{hurry}: " + (
        f"{named(nodes)}."
    )


def _why(full: Full) -> str:
    if not full.most:
        return f"No node of {full.scope} may be taken out: policy.{full.setting} allows none."
    return f"{len(full.out)} of at most {full.most} nodes of {full.scope} are out (policy.{full.setting}): " + (
        f"{named(full.out) or 'none'}."
    )


def _todo(full: Full) -> list[str]:
    lines = []
    if full.stuck:
        lines.append(
            f"Waiting for a person, and keeping places: {named(full.stuck)}. For each: sickbay case show, then "
            "sickbay case retry (treat again), examine, or abort (let the node go)."
        )
    if full.others:
        lines.append(
            f"Out by nobody's case of ours: {named(full.others)}. Those that are well: return them to service."
        )
    if full.away:
        lines.append(f"Away together with many, one case is about what they share: {named(full.away)}.")
    if full.most and len(full.out) > len(full.stuck) + len(full.others) + len(full.away):
        lines.append("The others give their places back as their treatment ends.")
    return [*lines, f"To let more out at once, raise policy.{full.setting}; the nodes that wait then go by themselves."]


def _count(nodes: Sequence[str], noun: str) -> str:
    return f"{len(nodes)} {noun}" + ("" if len(nodes) == 1 else "s")


def _verb(nodes: Sequence[str], verb: str) -> str:
    return verb + ("s" if len(nodes) == 1 else "")


# --- a setting that allows none ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bar:
    """What stands in the way of all in a pool whatever they wait to do: no passing of time moves it. Where a setting is
    about one verb its name says so; a case that went on to its next rung was told of twice (seed 892)."""

    setting: str
    pool: str


def barred(bar: Bar, waiting: Sequence[Waiter], why: str, watch: float, wall: float) -> Notice:
    """Those that cannot wait are named first."""
    ordered = [w.case for w in sorted(waiting, key=lambda w: (not w.urgent, w.node))]
    level = "urgent" if any(w.urgent for w in waiting) else "warning"
    count = f"{_count(ordered, 'case')} {_verb(ordered, 'wait')}"
    body = [
        f"{why[:1].upper()}{why[1:]}. {count} for it, with nothing done meanwhile: {named(ordered)}.",
        f"{_way_out(bar)} To let one go: sickbay case abort {ordered[0]}.",
    ]
    key = f"none/{bar.setting}/{bar.pool}/{level}/{int(watch // RENEW_S)}"
    return Notice(key, level, f"pool {bar.pool}: {_what(bar)}, {count}", "\n".join(body), "", wall)


def _what(bar: Bar) -> str:
    late = bar.setting == WINDOWS
    return "no maintenance window opens in time" if late else f"policy.{bar.setting} allows none"


def _way_out(bar: Bar) -> str:
    if bar.setting == WINDOWS:
        return "They go on when a window opens: give policy.windows one that opens sooner, or let them wait longer."
    return f"They go on when policy.{bar.setting} is raised."
