"""The doors. IO happens behind these protocols and nowhere else; each says what its callers may assume.

Adapters implement them knowing only `model`; `controller/` and `agent/` call them; one contract suite tests each door.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from sickbay.model import (
    Action,
    Archive,
    Case,
    Change,
    Command,
    Fleet,
    Ledger,
    Node,
    NodeRecord,
    Notice,
    Outcome,
    Part,
    Pause,
    Recovery,
    Verb,
)


class Clock(Protocol):
    def now(self) -> float:
        """Wall time, seconds since the epoch; may jump. For people."""

    def monotonic(self) -> float:
        """Never goes back. For measuring how long we have been watching."""


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command printed. `timed_out` means it was given up (killed, or stuck in D state and left behind)."""

    code: int | None
    stdout: str
    stderr: str
    timed_out: bool = False
    missing: bool = False  # no such tool
    stuck: bool = False  # with timed_out: it could not even be killed (D state) and was left behind


class Host(Protocol):
    """What a check may touch on a node. Real, simulated and recorded hosts are equals."""

    name: str

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        """Run a command, never through a shell. Never raises; output is bounded to 8 MiB."""

    def read(self, path: str) -> str | None:
        """A file's text, or None if it cannot be read. Bounded to 8 MiB. For /proc, /sys, /etc: what may hang, run."""

    def names(self, path: str) -> tuple[str, ...] | None:
        """The names in a folder of /proc, /sys, /dev or /etc, sorted; None if it is not there. Bounded to 65,536."""

    def fetch(
        self, url: str, timeout_s: float, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> str | None:
        """The body of an answer with status 200, bounded to 1 MiB; None otherwise. For the machine's own metadata."""

    def kernel_lines(self, cursor: str) -> tuple[list[str], str]:
        """Kernel-origin records after the cursor ("" = from this boot's start), and the cursor to hand in next time."""

    def boot_id(self) -> str: ...


class Platform(Protocol):
    """Where the nodes live. Knows nothing of cases beyond the id in our mark."""

    verbs: frozenset[Verb]

    def observe(self) -> Fleet:
        """Everything, once: at start and for resync. A read, possibly seconds old."""

    def watch(self, sink: Callable[[Change], None]) -> Callable[[], None]:
        """Deliver every change after the last observe, in order per object, at least once; returns a stop function."""

    def look(self, node: str) -> Node | None:
        """One node, read directly and never from a cache; None if the object is not there."""

    def ask_after(self, node: str, instance: str) -> None:
        """A node with an open case, or with ranks out of reach, that `observe` does not show: if its machine no longer
        exists, every sink is told so (NodeDeleted, gone), now or later. It may have gone while nobody watched."""

    def perform(self, action: Action) -> Outcome:
        """Answer within 10 s and never raise for an operating error. Idempotent by `action.key`.

        Long work answers Started and is asked again with the same key. For SENT_ONCE verbs only a call with
        `action.call` set may act; any other ask observes, and says Lost when it knows the call never arrived.
        Failed with `lacks` says that only a right of ours is missing, or that an examination is not let in: told, and
        asked for again until that is over (DRAIN, RELEASE, VERIFY). A treatment that cannot be delivered now (its
        provider does not answer or throttles, nothing reaches the node, its Job is not let in) answers Retry with why
        in words, and Lost when asked about: it is asked for again later.
        CORDON is for the machine in `before.instance`; if the name belongs to another one now it answers Failed. With
        `unless` = "in service" it answers Refuted, and does nothing, when nobody keeps work from the node any more;
        with "opened" when the node carries our mark and somebody has opened it.
        An ask with `args["withdraw"]` (a cancelled case's, about what it had sent) takes the treatment back: once the
        answer is Lost it can never begin; what has begun, or may have, is observed as by any other ask. What a platform
        keeps waiting before it begins is taken back by the door itself after minutes, and answered with Unguarded.
        RELEASE with `args["cancel"]` takes back whatever else the case had sent to the node and has not begun.
        Before a treatment acts, the door re-reads: our mark carries this case, cordoned, empty or unreachable,
        boot id == before.boot_id; otherwise it answers Unguarded. With `unless` = "ready" it answers Refuted, and does
        nothing, when the node is ready by then. RESTART_JOB is create-if-absent by attempt, and re-checks that its
        nodes carry no mark. It refuses while ranks of an earlier attempt live: on a node that answers all but those
        that no signal ends (only where our mark is), on one that does not all but those in `args["behind"]` ("all", or
        names of nodes; core/reach.py decides). No mark is a fence where nobody can read it.
        """


Value = Case | Recovery | NodeRecord | Ledger | Part | Command | Pause
V = TypeVar("V", Case, Recovery, NodeRecord, Ledger, Part, Command, Pause)


Names = list[str]  # within a store `list` is a method
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Stored(Generic[T_co]):
    """A record as it stands in the store."""

    value: T_co
    version: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Unread:
    """A live record that is there and cannot be read: damaged, or written by a newer Sickbay."""

    kind: type[Value]
    key: str  # "" where not even that can be told
    where: str  # the file or object, as a person would look for it
    why: str
    removal: str  # what a person types to be rid of it; "" where there is no such thing
    epoch: int = 0

    @property
    def name(self) -> str:
        return f"{self.kind.__name__} {self.key}".strip()


class Store(Protocol):
    """Keyed records, each compare-and-set. Key: Case.id, Recovery.job, NodeRecord.node, Part.serial, Command.id,
    Pause.scope; the Ledger is one. Every record carries `cluster`; a store serves one cluster.

    Writes by a controller carry its leader epoch: a lower epoch than the stored record's is StaleWrite, and so is a
    version other than `expect`. People's records (Command, Pause) carry epoch 0 and are exempt.

    A record that cannot be read stops nobody else's: `list` and `history` leave it out, `unread` names it, `get` and
    every write to its key raise Unreadable and change nothing. Only `delete`, a person's word, removes it.
    """

    @property
    def lanes(self) -> int:
        """How many records may be written side by side; 1 where a file has one writer."""

    @property
    def frugal(self) -> bool:
        """Is a write dear? Then what may wait for the next write of its record does (core/keeping.py)."""

    def get(self, kind: type[V], key: str) -> Stored[V] | None: ...

    def list(self, kind: type[V]) -> list[Stored[V]]:
        """Live records of a kind that can be read, ordered by key."""

    def unread(self) -> Sequence[Unread]:
        """Live records of every kind that cannot be read just now; what was mended or removed is not among them. Cheap
        enough for every pass that found another token."""

    def create(self, value: Value, epoch: int = 0) -> int:
        """Create-if-absent, returns the version; AlreadyExists if there is one (for a Case also in the archive)."""

    def commit(self, value: Value, expect: int, epoch: int, consumes: Sequence[str] = ()) -> int:
        """Compare-and-set, returns the new version. `consumes`: ids of Commands removed in the same write."""

    def archive(self, value: Case | Recovery, expect: int, epoch: int, consumes: Sequence[str] = ()) -> None:
        """As commit, and moves the record from the live ones to the append-only archive (kept 400 days)."""

    def delete(self, kind: type[V], key: str) -> None:
        """Remove a Command, Pause or NodeRecord; no error if it is not there."""

    def history(
        self, kind: type[V], *, node: str = "", fault: str = "", since: float = 0.0, limit: int = 100
    ) -> Iterator[V]:
        """Archived Cases or Recoveries, newest first."""

    def last_ended(self, kind: type[V], key: str) -> V | None:
        """The archived Case or Recovery of this key that ended last, if it can be read; None while one is live. One
        look, however long the archive is."""

    def prune(self, older_than: float) -> int:
        """Forget archived records that ended before this wall time; returns how many."""

    def missing(self, kind: type[V], keys: Collection[str]) -> Names:
        """Which of these are no longer among the live records; cheap, for it is asked whenever the token has moved."""

    def moved(self, kind: type[V], key: str, version: int) -> bool:
        """Is a live record there in another version than this? As far as is known without asking anybody; cheap."""

    def token(self) -> int:
        """Changes whenever anybody wrote anything; cheap enough to ask on every pass."""

    def close(self) -> None: ...


class EvidenceStore(Protocol):
    """Archives of what sick nodes could still tell, by name, bounded in size and in time. They came from sick machines:
    kept as they are and never opened here."""

    @property
    def trouble(self) -> str:
        """Why the last archive was not kept, in words; "" when it was."""

    def put(self, name: str, data: bytes) -> Archive:
        """Keep it; under the same name again, in its place. EvidenceError when it is too large, when there is no room
        even without what is past its time, or when it cannot be written."""

    def get(self, archive: Archive) -> bytes:
        """What was put, checked by size and digest. EvidenceError when it is gone or is something else."""

    def prune(self) -> int:
        """Remove what is past its time; returns how many."""


class Notifier(Protocol):
    """Tells people. No state, no retries (the outbox has them), no wording (explain has it)."""

    name: str

    def send(self, notice: Notice) -> Outcome: ...


class Leader(Protocol):
    """One brain at a time."""

    def acquire(self) -> bool:
        """Try to become or stay leader; False if somebody else is. Never blocks for more than a second."""

    def release(self) -> None: ...
