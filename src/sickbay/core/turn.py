"""The nouns of one decision about a node or a job: what it may look at (slices, Context), what it says (decisions).

`Turn` is the working state while core/decide.py takes its steps; it never leaves core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sickbay.catalog import Catalog
from sickbay.core.admit import Refusal
from sickbay.core.blame import BlameVerdict
from sickbay.core.capacity import Trust
from sickbay.core.witness import weight
from sickbay.model import (
    Case,
    Command,
    Diagnosis,
    Event,
    Finding,
    Job,
    Latch,
    Node,
    NodeRecord,
    Outcome,
    Recovery,
    Verb,
)
from sickbay.settings import CEILINGS, Policy


@dataclass(frozen=True, slots=True)
class Now:
    """Watch time decides, wall time is for people."""

    watch: float
    wall: float


@dataclass(frozen=True, slots=True)
class Context:
    """What does not change from node to node."""

    catalog: Catalog
    policy: Policy
    verbs: frozenset[Verb]
    now: Now
    cluster: str = ""
    ceilings: Mapping[str, frozenset[Verb]] = field(default_factory=lambda: CEILINGS)  # who may cause what


@dataclass(frozen=True, slots=True)
class NodeSlice:
    """Everything one decision may look at."""

    record: NodeRecord
    node: Node | None = None  # None: the object is not there (the machine may be)
    gone: bool = False  # the provider says the machine is gone
    case: Case | None = None
    findings: tuple[Finding, ...] = ()  # our own monitor's, besides the agent's
    outcome: Outcome | None = None
    answers: str = ""  # key of the action the outcome is for
    commands: tuple[Command, ...] = ()
    granted: bool = False
    refusal: Refusal | None = None
    beside: bool = False  # its place was given beside the limits, for its node was out already
    busy: bool = False  # a job that makes progress lives here
    loaded: bool = (
        False  # a job that makes steps runs here; stricter than busy: one that is being started does not count
    )
    died: bool = False  # a job that ran here died a moment ago: what killed it is often heard of later than its end
    paused: str = ""
    explained: Mapping[str, str] = field(default_factory=dict)  # fault -> open case about a common cause of it
    condemned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # parts -> machines that may show them
    carriers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # serial or UUID -> nodes that show it now
    returned: frozenset[str] = frozenset()  # of these, what came back and was sent away once more
    stray: str = ""  # our mark, read directly just now, of a case that has no record
    lost: Case | None = None  # its record, if somebody deleted it while we looked on
    read_again: bool = False  # nobody could attend to its case until now: a record was unreadable, or an error ours
    mute: bool = False  # the whole pool's instruments are silent: one notice says so, not one per node
    away_since: float | None = None  # watch time since when it has not been ready, by our own looking
    absent: str = ""  # why nothing is done to a node that is away: many are, and one case is about what they share
    over: str = ""  # why a case about something shared has ended by itself
    taken_back: str = ""  # "driver=590": what its fault had come with, and is not on it any more
    witness: str = ""  # who else says that a node which does not answer is alive
    joined: float | None = None  # watch time at which it joined, if it has not been found well since
    came_sick: int = 0  # of the machines that joined its pool before it, in a row
    exchange: bool = False  # a person approved REPLACE for all that went away with it


@dataclass(frozen=True, slots=True)
class Decision:
    record: NodeRecord
    case: Case | None = None
    opened: bool = False
    ended: bool = False
    consumed: tuple[str, ...] = ()
    condemn: tuple[tuple[str, str], ...] = ()  # (serial, why)
    pardon: tuple[tuple[str, str], ...] = ()  # (serial, who and why)


@dataclass(slots=True)
class Turn:
    """The working state of one decision."""

    s: NodeSlice
    ctx: Context
    record: NodeRecord
    case: Case | None
    fresh: tuple[Diagnosis, ...] = ()
    worse: bool = False
    outcome: Outcome | None = None
    consumed: list[str] = field(default_factory=list)
    pardon: tuple[tuple[str, str], ...] = ()
    unheld: bool = False
    still: str = ""  # why it is paused, whoever holds it besides


Move = tuple[Event, str, str]  # event, why, by
Said = tuple[Event, str] | None


def latches_of(turn: Turn, case: Case) -> tuple[Latch, ...]:
    """The verdicts on this node that belong to the case: of its strongest witnesses, for nobody else's word may keep
    alive what they have taken back."""
    faults, ceilings = {d.fault for d in case.diagnoses}, turn.ctx.ceilings
    least = max((weight(d.source, ceilings) for d in case.diagnoses), default=0)
    return tuple(la for la in turn.record.latched if la.fault in faults and weight(la.source, ceilings) >= least)


@dataclass(frozen=True, slots=True)
class JobSlice:
    """Everything one decision about a job may look at."""

    job: Job | None
    recovery: Recovery | None
    outcome: Outcome | None = None
    answers: str = ""
    cases: tuple[Case, ...] = ()  # open cases on the job's nodes
    kinds: dict[str, str] = field(default_factory=dict)  # fault -> kind, from the catalog
    harmless: frozenset[str] = frozenset()  # codes of faults from which work that runs is safe
    verdict: BlameVerdict | None = None  # of the dead ranks' logs
    good: tuple[str, ...] | None = None  # nodes known to be good and free; asked for only while waiting
    on_demand: bool | None = None  # are its nodes made when work waits for them? None: none of them is to be seen
    doubts: Mapping[str, Trust] = field(default_factory=dict)  # of those, the ones under suspicion
    unreachable: Mapping[str, float] = field(default_factory=dict)  # its nodes that do not answer -> since when
    machines: Mapping[str, str] = field(default_factory=dict)  # while some do not answer: its nodes -> their machines
    left_on: Mapping[str, float] = field(default_factory=dict)  # shown with its ranks, of any attempt, and silent since
    powerless: tuple[str, ...] = ()  # those that do not answer and have no power, by their provider's word
    ending: tuple[str, ...] = ()  # those that answer and still show it: ranks of its last attempt end there
    outage: str = ""  # what it shares with others and fails by: no attempt is spent on it
    explained: Mapping[str, str] = field(default_factory=dict)  # its nodes -> an open case about a cause they share
    commands: tuple[Command, ...] = ()
    paused: str = ""
    given_up: bool = False  # it has no record because the last one gave up this very attempt
    lost: Recovery | None = None  # its record, if somebody deleted it while we looked on
    unknown: bool = False  # somebody removed its record, which nobody could read
    undelivered: str = ""  # why what it asks for cannot even be asked of the platform


@dataclass(frozen=True, slots=True)
class JobDecision:
    recovery: Recovery | None
    opened: bool = False
    ended: bool = False
    suspects: tuple[tuple[str, str], ...] = ()  # (node, why): a silent rank lives there
    found: tuple[Finding, ...] = ()  # what ails its nodes by their examination: for cases of their own
