"""The nouns of the line: Signal -> Finding -> Diagnosis -> Case -> Plan -> Action -> Outcome -> JobRestart.

Everybody imports this file; it imports only the standard library. Values are frozen: a change is a new value.
It must never hold a decision, read a clock or touch IO.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum


class Status(StrEnum):
    """What a check says. UNKNOWN (no tool, time-out, unreadable) never disrupts and never counts as healthy."""

    OK = "OK"
    DEGRADED = "DEGRADED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


class Severity(IntEnum):
    """What a fault may need at most. On the wire the originals' word for REPLACE is ISOLATE (see wire.py)."""

    NONE = 0
    MONITOR = 1
    RESET = 2
    REBOOT = 3
    REPLACE = 4


class When(StrEnum):
    """How urgently a sick node must be emptied."""

    NOW = "now"  # GPU lost, uncontained error: the work on it is lost already
    CHECKPOINT = "checkpoint"  # alive but degrading: let the job save first
    IDLE = "idle"  # can wait until the job ends


class Verb(StrEnum):
    """Everything a platform can be asked to do. In the order of force (see `force`)."""

    CORDON = "CORDON"
    CHECKPOINT_JOB = "CHECKPOINT_JOB"
    DRAIN = "DRAIN"
    COLLECT = "COLLECT"
    VERIFY = "VERIFY"
    RELEASE = "RELEASE"
    STOP_JOB = "STOP_JOB"
    RESTART_JOB = "RESTART_JOB"
    RESET_GPU = "RESET_GPU"
    REBOOT = "REBOOT"
    POWER_CYCLE = "POWER_CYCLE"
    REPLACE = "REPLACE"


TREATMENTS = (Verb.RESET_GPU, Verb.REBOOT, Verb.POWER_CYCLE, Verb.REPLACE)  # weakest first: this is the ladder's order
SENT_ONCE = frozenset((*TREATMENTS, Verb.RESTART_JOB))  # a second call would do harm: commit first, then call


@dataclass(frozen=True, slots=True)
class Place:
    """Where: a node, and within it a PCI address such as 0000:3b:00 (valid for one boot), or the whole node."""

    node: str
    device: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One part. The serial is its name for life; index and pci are where it sits today."""

    uuid: str
    serial: str
    pci: str
    index: int


@dataclass(frozen=True, slots=True)
class Signal:
    """Raw reading of an instrument, before anybody judged it."""

    source: str  # "kernel", "nvidia-smi", "dcgm", "metrics", "job-log", ...
    place: Place
    name: str
    value: str
    at: float


@dataclass(frozen=True, slots=True)
class Progress:
    """A training job is alive: this rank finished this step. Or nobody can say: `unread` is why."""

    job: str
    rank: int
    step: int
    at: float
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One judged observation. `id` is "<boot id>/<sequence>", unique for ever and ordered within a boot."""

    id: str
    source: str  # who says it, bounded by a ceiling: agent, monitor, condition, sweep, alertmanager, webhook, llm, job
    check: str  # "kernel-log", "nvidia-smi", "dcgm-l2", ...
    place: Place
    status: Status
    code: str  # "xid.79", "smi.gpu-lost", "dcgm.DCGM_FR_ROW_REMAP_FAILURE", "" for a plain OK
    reason: str  # one sentence an operator understands
    evidence: tuple[str, ...] = ()  # quoted lines, short
    severity: Severity = Severity.NONE
    boot_id: str = ""
    at: float = 0.0
    received_at: float = 0.0
    answers: str = ""  # key of the VERIFY action this answers: that is what makes it fresh
    count: int = 1  # same-event lines folded into this one
    part: str = ""  # serial of the GPU, when the agent's map knows it
    traits: Mapping[str, str] = field(default_factory=dict)  # facts a rule may need: text, gpc, mig, hex ...


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong, in the words of catalog/faults.toml, and the quoted lines that say so."""

    fault: str
    place: Place
    severity: Severity
    when: When
    confidence: float
    because: tuple[str, ...]
    at: float
    code: str = ""
    source: str = "agent"
    part: str = ""
    finding: str = ""  # id of the newest finding behind it


@dataclass(frozen=True, slots=True)
class Rung:
    verb: Verb
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The ladder for this case, weakest rung first, and the checks that must pass before the node returns."""

    rungs: tuple[Rung, ...] = ()
    verify_with: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of catalog/faults.toml."""

    name: str
    title: str
    kind: str  # hardware | infrastructure | application | instrument | configuration | inform
    severity: Severity
    when: When
    ladder: str  # a row of ladders.toml; "" = never treated
    cleared_by: str  # reset | boot | ready | pass:<check> | operator
    settle_s: float  # after a boot, before its absence means anything
    verify_with: tuple[str, ...]
    confidence: float
    meaning: str
    advice: str
    sources: tuple[str, ...]
    confirm: int = 1  # findings in a row before it is believed
    treats: bool = False  # may open a case about a node


@dataclass(frozen=True, slots=True)
class Before:
    """What was true just before a treatment was sent, read directly and never from a cache."""

    boot_id: str = ""
    instance: str = ""
    uid: str = ""
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Action:
    """One request to a platform. `key` names it for ever; a re-send carries the same key and only observes."""

    key: str  # "{case}/{step}-{when the case was opened}"
    verb: Verb
    place: Place
    args: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()  # for actions about a job: where
    before: Before = Before()
    sends: int = 0  # calls committed so far; only SENT_ONCE verbs count them
    sent_at: float | None = None
    ask_at: float = 0.0  # watch time of the next ask
    call: bool = True  # False: look, do not touch


@dataclass(frozen=True, slots=True)
class Archive:
    """What COLLECT has put into the evidence store: the name that we gave it, and what it must be when fetched."""

    name: str  # made from the action's key, never from what a node says
    sha256: str
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class Done:
    detail: str = ""
    findings: tuple[Finding, ...] = ()  # VERIFY: what the checks said, each answering the action's key
    archive: Archive | None = None  # COLLECT: what was kept


@dataclass(frozen=True, slots=True)
class Started:
    after_s: float
    detail: str = ""
    held: bool = False  # somebody keeps it from beginning, and a person may have to act: said at once


@dataclass(frozen=True, slots=True)
class Retry:
    after_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Failed:
    why: str
    lacks: bool = False  # only a right, or to be let in, which somebody can change: it is worth asking again


@dataclass(frozen=True, slots=True)
class Unguarded:
    """Refused at the door: our mark, the cordon, emptiness or the boot id is not what the case believes."""

    why: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The platform knows that the earlier call never arrived; it may be made once more."""

    why: str


@dataclass(frozen=True, slots=True)
class Refuted:
    """Not done, because what it was for is not so any more: the node that was away answers again. Nobody's fault, so it
    never counts as a refusal."""

    why: str


Outcome = Done | Started | Retry | Failed | Unguarded | Lost | Refuted


class Phase(StrEnum):
    SUSPECTED = "SUSPECTED"
    WAITING = "WAITING"
    CORDONING = "CORDONING"
    HOLDING = "HOLDING"
    DRAINING = "DRAINING"
    COLLECTING = "COLLECTING"
    QUEUED = "QUEUED"
    REPAIRING = "REPAIRING"
    VERIFYING = "VERIFYING"
    RETURNING = "RETURNING"
    ESCALATED = "ESCALATED"
    CANCELLING = "CANCELLING"
    RESOLVED = "RESOLVED"
    DISMISSED = "DISMISSED"
    DEFERRED = "DEFERRED"


class Event(StrEnum):
    """What happened to a case. Past participles; guards have already been turned into events."""

    CONFIRMED = "CONFIRMED"
    CLEARED = "CLEARED"
    TIMED_OUT = "TIMED_OUT"
    ADMITTED = "ADMITTED"
    DONE = "DONE"
    FAILED = "FAILED"
    READY = "READY"
    WORSENED = "WORSENED"
    UNREACHABLE = "UNREACHABLE"
    UNTREATED = "UNTREATED"
    EXHAUSTED = "EXHAUSTED"
    REPLACED = "REPLACED"
    UNGUARDED = "UNGUARDED"
    INCONCLUSIVE = "INCONCLUSIVE"
    RETRIED = "RETRIED"
    EXAMINED = "EXAMINED"
    CANCELLED = "CANCELLED"
    GONE = "GONE"
    REJOINED = "REJOINED"
    UNHELD = "UNHELD"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a journal: a transition or a person's command, with who and why."""

    step: int
    event: str
    at: float  # wall time, for people; never used to order
    by: str
    why: str
    phase: str = ""  # the phase entered


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should read. `key` makes delivery once."""

    key: str
    level: str  # info | warning | urgent
    title: str
    body: str
    case: str = ""
    at: float = 0.0
    alike: str = ""  # those about other nodes with the same word here may be told in one message


@dataclass(frozen=True, slots=True)
class Absence:
    """Nodes that are away together, for the one case about what they share. Counts and some names, never all."""

    scope: tuple[str, ...]  # ("fleet",), or the factors ("rack=r7") whose absent nodes belong to it
    shared: str  # what they share, in words
    since: float  # watch time at which the first of them was missed
    count: int  # away when last counted
    most: int  # away at its worst
    names: tuple[str, ...] = ()  # of those away at its worst, at most 20
    mostly_back: float | None = None  # watch time since when four fifths have been back, and nobody else has returned
    all_back: float | None = None  # watch time since when nobody has been away
    told: tuple[str, ...] = ()  # what people were told of it
    split: bool = False  # a person said: treat them one by one
    left: int = 0  # of those away at its worst: taken away meanwhile, or held by somebody
    wave: float = -1.0  # watch time at which the last of those began to go away who were away at its worst
    decided: float | None = None  # watch time at which a person said what becomes of those who were away then
    fewest: int = 0  # away since it was at its worst
    returned: float | None = None  # watch time at which the last of them returned
    pause: float = 0.0  # the longest time between two returns: they come one by one
    boots: str = ""  # of all who belonged to it: the boots with which they went away (core/proved.py)


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A treatment that whoever must do it could not be given: provider away, throttled, out of reach. Not tried."""

    verb: Verb
    since: float  # watch time of the first try
    at: float  # wall time of the same
    tries: int
    again_at: float  # watch time before which it is not asked for again
    told: bool = False  # people know


@dataclass(frozen=True, slots=True)
class Case:
    """One node's illness from suspicion to its end. Only core/machine.py returns a Case in another phase."""

    id: str  # "{node}.{n}", n never reused
    node: str
    uid: str
    pool: str
    diagnoses: tuple[Diagnosis, ...]
    plan: Plan
    phase: Phase
    step: int
    opened_at: float  # wall
    entered: float  # watch time at which this phase began
    deadline: float | None  # watch time
    cluster: str = ""
    instance: str = ""
    rung: Verb | None = None  # highest rung tried: the next one is above it
    rungs_tried: tuple[Verb, ...] = ()  # in this case, for the story
    visits: int = 0  # times QUEUED was entered
    examine: bool = False  # verify only, no rung, at the next visit of QUEUED
    unguarded: int = 0  # treatments that were refused at the door
    held: bool = False
    cancelled: bool = False
    approved: tuple[Verb, ...] = ()
    refusal: str = ""  # why it waits, in words; "" when it does not
    retry_at: float | None = None  # watch time at which a refusal is looked at again
    pending: Action | None = None
    unfinished: Action | None = None  # a treatment that was sent and is not known to be over
    ours: bool = False  # we may have left a mark on the node
    newcomer: bool = False  # the gate for a new or replaced node, not an illness
    factor: str = ""  # a case about a common cause: no node is touched
    evidence: str = ""  # what COLLECT said, for people: no file is opened by it
    jobs_hurt: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()  # written, not yet delivered
    journal: tuple[Entry, ...] = ()
    dropped_entries: int = 0
    schema: int = 1
    paused: bool = False  # frozen by a Pause, as `held` is by a person
    cordon_version: int = 0  # resource version at which our cordon was read back: an uncordon is believed only after it
    first_evidence_at: float = 0.0  # wall: where MTTR begins
    timeline: tuple[tuple[str, float], ...] = ()  # (phase, wall time entered): the MTTR split
    opened_version: int = 0  # of the node as the case first saw it: an older look says nothing about its machine
    record: NodeRecord | None = None  # what we remember of the node, while the case is open: one write for both
    adopts: str = ""  # our mark of a case that has no record any more: CORDON takes it over, RELEASE takes it off
    archive: Archive | None = None  # the evidence of this case, in the evidence store
    ready: str = ""  # closed, and why its work may be evicted now: it waits for a drain's place or a person's word
    absence: Absence | None = None  # of a case about many nodes that are away together
    alive: bool = False  # while it was away somebody else called it alive: that it was away is no evidence
    flaps: bool = False  # it comes and goes, and a person decides: that it answers now changes nothing
    undelivered: Undelivered | None = None  # its next treatment, which could not be delivered so far


class JobPhase(StrEnum):
    """What the platform says about a job."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    STOPPED = "STOPPED"  # not running, resumable (suspended, stopped by us)
    SUSPENDED = "SUSPENDED"  # stopped or preempted by somebody else
    SUCCEEDED = "SUCCEEDED"
    GONE = "GONE"


@dataclass(frozen=True, slots=True)
class RankExit:
    rank: int
    node: str
    code: int | None  # None: still there
    tail: tuple[str, ...] = ()  # last log lines


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint (its marker is there)."""

    step: int
    at: float
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A training job as the platform shows it."""

    id: str
    nodes: tuple[str, ...]
    phase: JobPhase
    attempt: int
    checkpoint: Checkpoint | None = None
    checkpoints: tuple[Checkpoint, ...] = ()  # complete ones, oldest first, bounded
    step: int = 0
    step_at: float = 0.0
    step_s: float = 1.0  # median step time
    ranks: int = 0
    exits: tuple[RankExit, ...] = ()  # those that died first come first
    silent: tuple[int, ...] = ()  # ranks that logged nothing while the others logged a watchdog time-out
    rank_nodes: tuple[str, ...] = ()  # node of each rank
    owner: str = ""
    managed: bool = True
    stopped_by: str = ""  # key of our action, or "drain:<case>", or a person
    version: int = 0
    cluster: str = ""
    unread: str = ""  # why its steps cannot be read now: as long as they cannot, that it tells none says nothing
    gpus_per_rank: int = 0  # of one that is stopped; 0: not known, it needs whole nodes
    unplaced: int = 0  # ranks of this attempt that no node has been found for yet
    fenced: bool = False  # its checkpoints are kept apart by attempt: what an old rank writes no later attempt reads
    uid: str = ""  # of its object; "" where the platform has none that lasts. Some are made anew to be restarted


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the platform shows it."""

    name: str
    uid: str  # of the object: a new one after delete and re-create
    instance: str  # of the machine
    pool: str = "default"
    rack: str = ""
    domain: str = ""  # NVLink domain
    factors: Mapping[str, str] = field(default_factory=dict)  # driver, image, rack, switch: what nodes may share
    ready: bool = True
    gone: bool = False  # the provider says the instance no longer exists
    boot_id: str = ""
    cordoned: bool = False  # closed for new work, by anybody
    mark: str = ""  # case id in our mark, "" if we have none here
    gate: bool = False  # newcomer gate (startup taint) still on
    others: tuple[str, ...] = ()  # who else holds it cordoned
    jobs: tuple[str, ...] = ()  # work that lives on it
    stuck: tuple[str, ...] = ()  # work whose processes cannot be killed
    gpus: tuple[Gpu, ...] = ()
    gpus_expected: int = 0
    gpus_allocatable: int = 0
    findings: tuple[Finding, ...] = ()  # what its agent says now, worst first
    last_check: float = 0.0  # heartbeat of the agent
    capacity: str = ""  # reservation, capacity block, asg, karpenter, spare: read before REPLACE
    opted_out: bool = False
    version: int = 0  # resource version: larger is newer
    gpus_taken: int = 0  # by the work on it
    on_demand: bool = False  # of an autoscaler: it makes others like it when work waits for one, and removes idle ones
    leaving: str = ""  # why it is meant to go or be away: scale-in, spot, a capacity block's end, power saving
    machine: str = ""  # by its provider or BMC: running | off | dead | retired; "" when nobody says


@dataclass(frozen=True, slots=True)
class Report:
    """What an agent says of its node, whole, each time: sent at once when something changed and as a heartbeat besides.

    Findings are its latched verdicts and the newest answer of each check, worst first. At least once; ids make it once.
    """

    node: str
    boot_id: str
    sequence: int  # grows with each report of one agent's state folder; the larger is the newer
    at: float
    findings: tuple[Finding, ...] = ()
    gpus: tuple[Gpu, ...] = ()  # the map of the last healthy cycle
    factors: Mapping[str, str] = field(default_factory=dict)  # driver, vbios, efa, nccl, kernel, instance-type ...
    instance: str = ""
    cluster: str = ""
    schema: int = 1


@dataclass(frozen=True, slots=True)
class Fleet:
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    observed_at: float


@dataclass(frozen=True, slots=True)
class NodeChanged:
    node: Node


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    name: str
    version: int
    gone: bool  # the machine too, not only the object


@dataclass(frozen=True, slots=True)
class JobChanged:
    job: Job


Change = NodeChanged | NodeDeleted | JobChanged | Progress


@dataclass(frozen=True, slots=True)
class Latch:
    """A verdict that stays until what the fault row names has cleared it."""

    fault: str
    code: str
    place: Place
    finding: str  # id of the newest finding
    boot_id: str
    since: float  # watch time
    seen: float  # watch time of the newest finding
    severity: Severity
    count: int = 1
    source: str = "agent"
    part: str = ""
    check: str = ""
    because: tuple[str, ...] = ()
    at: float = 0.0  # first seen, by the node's own clock: comparable with its job's checkpoints, not with ours


@dataclass(frozen=True, slots=True)
class Past:
    """What an ended case leaves behind on its node: for flaps, relapses and lemons."""

    case: str
    fault: str
    part: str
    rung: Verb | None
    end: str
    flap: bool
    ended: float  # watch time
    ended_at: float  # wall


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is held against a part, or against a node as a whole: graded, and it fades (core/suspicion.py)."""

    part: str  # serial; "" for the node itself
    strikes: int = 0  # how often it was ill again after a treatment; 0: it is not suspected, its kills are counted
    why: str = ""
    at: float = 0.0  # wall, of the last strike
    load_s: float = 0.0  # good time under load since then, up to `loaded_since`
    loaded_since: float | None = None  # watch time since which work makes steps on it
    checked: bool = False  # it has passed a deep check since
    kills: tuple[float, ...] = ()  # watch times at which it ended a job


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What we remember about a node; an open case carries it. `last_n` makes case numbers never repeat."""

    node: str
    uid: str = ""
    last_n: int = 0
    seen: Mapping[str, int] = field(default_factory=dict)  # stream -> highest sequence
    latched: tuple[Latch, ...] = ()
    quiet: Mapping[str, float] = field(default_factory=dict)  # fault|boot|device -> no case before this watch time
    past: tuple[Past, ...] = ()
    lemon: str = ""  # of records of earlier versions: why it was never to be used again; read as a doubt
    boot_id: str = ""
    boot_seen: float = 0.0  # watch time at which this boot was first seen
    not_ready_since: float | None = None  # watch time
    cluster: str = ""
    schema: int = 1
    instance: str = ""
    notices: tuple[Notice, ...] = ()  # written, not yet delivered
    told: Mapping[str, float] = field(default_factory=dict)  # code -> watch time of the last notice about it
    doubts: tuple[Doubt, ...] = ()  # parts that came back ill, or ended jobs
    replaced: Mapping[str, float] = field(default_factory=dict)  # case -> watch time: what stood here was sent away
    unproved: str = ""  # the boot with which it came back from an absence of many, not yet examined then


@dataclass(frozen=True, slots=True)
class Part:
    """A GPU by serial: where it lived, what happened to it. A condemned part is refused when it reappears."""

    serial: str  # its UUID where the board has no serial that is its alone
    uuid: str = ""
    nodes: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    condemned: str = ""  # why, "" if not
    strikes: int = 0
    cluster: str = ""
    schema: int = 1
    unseen: tuple[str, ...] = ()  # machines whose GPUs nobody knew then: should one show it, it never left that one
    pardoned: str = ""  # who lifted the last verdict, and why


@dataclass(frozen=True, slots=True)
class Seat:
    """A place in a limit, taken before the case moves."""

    case: str
    node: str
    kind: str  # out | treat
    verb: str
    pool: str
    rack: str
    domain: str
    since: float  # watch time
    urgent: bool = False
    free: bool = False  # given beside the limits, for its node was out already


@dataclass(frozen=True, slots=True)
class Sighting:
    """A treatable fault, newly seen on a node, and what the node shared with others when it was."""

    node: str
    fault: str
    seen: float  # watch time
    jobs: tuple[str, ...] = ()
    factors: Mapping[str, str] = field(default_factory=dict)
    came: tuple[str, ...] = ()  # "driver=590": of these, what had come to the node within the hour before


@dataclass(frozen=True, slots=True)
class Ledger:
    """The one record that makes limits hold with two writers, and time pass only while we watch."""

    epoch: int = 0
    watch_time: float = 0.0
    last_pass: float = 0.0  # wall, for people
    seats: tuple[Seat, ...] = ()
    windows: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # "pool/verb" -> watch times of grants
    breaker: str = ""  # why it is open, "" when closed
    breaker_until: float = 0.0  # watch time
    split_at: float = -1.0  # watch time: who has been away since then or longer is treated alone
    left_at: float = -1.0  # likewise, left to people for `policy.quiet_s`: they closed the case about them
    left_names: tuple[str, ...] = ()  # who was left to them then; (): too many, or written by an earlier version
    sightings: tuple[Sighting, ...] = ()  # of the last three days, the newest: a slow roll-out outlives a leader
    replaced_at: float = -1.0  # likewise, replaced: a person approved it for all of them, in the case that comes next
    replaced_from: float = -1.0  # whoever was away at this watch time was treated alone, or left to people, even then
    replaced_scope: tuple[str, ...] = ()  # what those share whom the approval was for
    unattended: Mapping[str, str] = field(default_factory=dict)  # "node n1", left alone by an error of ours -> which
    strays: Mapping[str, str] = field(default_factory=dict)  # node -> a mark of ours that no record answers for yet
    notices: tuple[Notice, ...] = ()
    cluster: str = ""
    schema: int = 1


class RecoveryPhase(StrEnum):
    RUNNING = "RUNNING"
    STALLED = "STALLED"
    STOPPING = "STOPPING"
    EXAMINING = "EXAMINING"
    WAITING_FOR_CAPACITY = "WAITING_FOR_CAPACITY"
    RESTARTING = "RESTARTING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    GONE = "GONE"


RECOVERY_WORDS: Mapping[RecoveryPhase, str] = {  # "llama is ..."
    RecoveryPhase.RUNNING: "running",
    RecoveryPhase.STALLED: "stalled: no rank makes a step",
    RecoveryPhase.STOPPING: "being stopped as a whole",
    RecoveryPhase.EXAMINING: "stopped while its nodes are examined",
    RecoveryPhase.WAITING_FOR_CAPACITY: "waiting for nodes that are known to be good",
    RecoveryPhase.RESTARTING: "being restarted",
    RecoveryPhase.COMPLETED: "finished",
    RecoveryPhase.FAILED: "given up",
    RecoveryPhase.STOPPED: "stopped by somebody else",
    RecoveryPhase.GONE: "deleted",
}


class Blame(StrEnum):
    HARDWARE = "hardware"
    INFRASTRUCTURE = "infrastructure"
    USER_CODE = "user-code"
    UNKNOWN = "unknown"


class Cost(StrEnum):
    """What an attempt that has ended costs its job: one of the attempts that may end without a new complete checkpoint,
    or, for a reason, none."""

    SETTLED = ""  # none has ended since the last count
    ONE = "one"
    SHARED = "shared"  # it failed like several others, or its nodes went away with many
    BLAMELESS = "blameless"  # it stood still or did not begin, and nothing is wrong with its nodes
    DRAINED = "drained"  # we emptied one of its nodes before its first step, or what it cost is settled already
    ABSENT = "absent"  # the nodes that it asked for did not come


@dataclass(frozen=True, slots=True)
class Recovery:
    """The life of one job through its failures. Only core/recover_table.py returns one in another phase."""

    job: str
    phase: RecoveryPhase
    attempt: int
    step: int  # transition number: fences late answers
    entered: float
    deadline: float | None
    nodes: tuple[str, ...] = ()
    pending: Action | None = None
    blame: Blame | None = None
    because: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()  # nodes not to use again for this job
    swap: bool = False  # the unknown-blame restart has been used, by an attempt that counts, since it saved last
    job_step: int = 0  # last training step seen
    progressed: float = 0.0  # watch time of the last new step
    checkpoint_step: int = -1  # that its last restart began from; of one that was found running, the newest before it
    barren: int = 0  # attempts in a row that ended without a new complete checkpoint, and count
    cost: Cost = Cost.SETTLED  # whether the attempt that ended last counts among them
    restarts: int = 0
    by_drain: str = ""  # case whose drain stopped it
    evidence_at: float | None = None  # wall time of the first evidence, for choosing a checkpoint older than it
    distrust: bool = False  # memory was corrupted: use only a checkpoint older than the evidence
    tracebacks: tuple[str, ...] = ()
    lost_steps: int = 0
    down_since: float | None = None  # wall
    owner: str = ""
    refusal: str = ""
    notices: tuple[Notice, ...] = ()
    journal: tuple[Entry, ...] = ()
    dropped_entries: int = 0
    cluster: str = ""
    schema: int = 1
    on_demand: bool = False  # its nodes are made when work waits for them
    expects: int = 0  # nodes that its last restart asked for, beyond those it was given
    arrivals: int = 0  # such requests in a row that ended in a sick node, or none
    unfenced: int = 0  # attempt that its owner said may be left behind where nobody can reach it
    stopped: float = -1.0  # watch time at which every rank of the last attempt was confirmed gone; -1: not yet
    told_of: int = 0  # attempt of which the owner knows that some nodes are out of reach
    hidden: Mapping[str, str] = field(default_factory=dict)  # then: its nodes -> their machines, for who leads next
    spared: int = 0  # attempts in a row that were blameless, since it saved last
    left_at: float | None = None  # watch time at which its owner was told that it is not brought back
    left_with: tuple[str, ...] = ()  # the cases that were named then
    pools: tuple[str, ...] = ()  # of its nodes, when they were last seen: they may all have other names by now
    behind: float = -1.0  # watch time since when its job shows the number of an earlier attempt; -1: it does not
    uid: str = ""  # of the object of the job that it is about; "": not known


@dataclass(frozen=True, slots=True)
class Command:
    """What a person asked for. Removed only by the commit that carries it."""

    id: str
    # approve | hold | unhold | abort | retry | examine | acknowledge | reopen | split | restart
    verb: str
    target: str  # case id, node or job
    by: str
    why: str
    at: float
    args: Mapping[str, str] = field(default_factory=dict)
    cluster: str = ""
    schema: int = 1


@dataclass(frozen=True, slots=True)
class Pause:
    """Hands off, until a wall time or for ever. Written by people, also while the controller is down."""

    scope: str  # "fleet", "pool:<name>", "node:<name>"
    by: str
    why: str
    since: float
    until: float | None = None
    cluster: str = ""
    schema: int = 1
