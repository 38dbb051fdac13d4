"""Our records as custom resources: which kind, under which name, and what a person sees in `kubectl get`.

Called by stores/kubernetes.py. The record travels whole under `record`, as sickbay.wire writes it: as a tree, or, where
that is long (LONG), as one line of text under `record.json`. Both are read whatever the kind. `shown` is made from it
for the printer columns in deploy/kubernetes/crds and is never read back. It must never do IO.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

import msgspec

from sickbay import wire
from sickbay.errors import Unreadable
from sickbay.kube import names
from sickbay.kube.names import GROUP, VERSION
from sickbay.kube.objects import Meta, Shape
from sickbay.model import RECOVERY_WORDS, Case, Command, Ledger, NodeRecord, Part, Pause, Phase, Recovery
from sickbay.ports import Stored, Unread, Value
from sickbay.stores import records

ENDED, CONSUMED, NODE = f"{GROUP}/ended", f"{GROUP}/consumed", f"{GROUP}/node"  # labels
LONGEST_LABEL, LONGEST_SHOWN = 63, 200
OVER = frozenset({Phase.RESOLVED, Phase.DISMISSED, Phase.DEFERRED})
MOST_ABOUT = 8  # newest lines of a journal
MOST_CONSUMED = 64  # ids of commands that one object carries until they are deleted

# `kubectl describe` prints a tree field by field: 200 lines that nobody reads, below the ten that a person wants.
LONG = (Case, Recovery)
PACKED = 2  # schema of a record in one line: a version from before it says so, and leaves the object as it is

_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

Shown = Mapping[str, str | int]


# --- what travels -----------------------------------------------------------------------------------------------------


class Object(Shape):
    """One of ours as it is read. `ended` (wall time) only in the archive; `of`: what version a copy was made from."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    key: str = ""
    epoch: int = 0
    ended: float = 0.0
    of: int = 0
    consumed: list[str] | None = None
    record: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))

    @property
    def is_ended(self) -> bool:
        return self.metadata.label(ENDED) == "true"


class Glimpse(Shape):
    """The same without the record: what a watch and the answer to a write need."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    key: str = ""
    epoch: int = 0
    ended: float = 0.0
    consumed: list[str] | None = None


class Body(Shape):
    """As it is written. (`omit_defaults` of Shape leaves out what is empty.)"""

    api_version: str
    kind: str
    metadata: Mapping[str, Any]
    key: str
    shown: Shown
    record: msgspec.Raw
    about: tuple[str, ...] = ()
    epoch: int = 0
    ended: float = 0.0
    of: int = 0
    consumed: tuple[str, ...] = ()


def body(
    value: Value, epoch: int, *, name: str = "", version: int = 0, ended: float | None = None,
    consumed: tuple[str, ...] = (), of: int = 0,
) -> Body:  # fmt: skip
    """The object to write; `version` 0 creates. StoreError when it could not be read back (an infinity, a NaN)."""
    record = _lean(type(value), wire.encode(value))
    wire.decode(type(value), record)
    record = _packed(record, value.cluster) if isinstance(value, LONG) else record
    key = records.key_of(value)
    metadata: dict[str, Any] = {
        "name": name or name_of(key),
        "labels": _labels(value, ended is not None, bool(consumed)),
    }
    if version:
        metadata["resourceVersion"] = str(version)
        metadata["managedFields"] = [{}]  # nobody else writes here: without field tracking a write costs a quarter less
    kind = KINDS[type(value)]
    return Body(
        f"{GROUP}/{VERSION}", kind.name, metadata, key, kind.show(value), msgspec.Raw(record), about(value),
        epoch, ended or 0.0, of, consumed[-MOST_CONSUMED:],
    )  # fmt: skip


def _lean(kind: type[Any], record: bytes) -> bytes:
    """Without the fields that are empty, as their default is: a server handles a JSON tree field by field, and most
    fields of most records are empty (a case's commit costs it about 40 % less)."""
    whole, empty = msgspec.json.decode(record, type=dict[str, msgspec.Raw]), _empty(cast(Any, kind))
    return msgspec.json.encode({name: raw for name, raw in whole.items() if empty.get(name) != bytes(raw)})


@cache
def _empty(kind: Any) -> Mapping[str, bytes]:
    """Fields whose default is empty, and how that is written. Schema and cluster are always said."""
    found = {}
    for field in fields(kind):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if default is not MISSING and not default and field.name not in ("schema", "cluster"):
            found[field.name] = msgspec.json.encode(default)
    return found


class _Line(msgspec.Struct, omit_defaults=True):
    """A record in one line of text."""

    json: str = ""
    schema: int = 0
    cluster: str = ""


def _packed(record: bytes, cluster: str) -> bytes:
    return msgspec.json.encode(_Line(record.decode(), PACKED, cluster))


def unpacked(kind: type[Any], raw: bytes) -> bytes:
    """The record itself, in whichever form it was written. What people may write by hand is never unpacked: a Command
    said `by: mallory` to the admission policy, and `by: the-boss` in its line."""
    if not issubclass(kind, LONG):
        return raw
    try:
        line = msgspec.json.decode(raw, type=_Line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return raw  # whoever reads it says what is wrong with it
    if line.json and line.schema > PACKED:
        raise Unreadable(wire.newer(kind, line.schema))
    return line.json.encode() or raw


def stored_in(kind: type[Any], found: Object) -> Stored[Any]:
    """Unreadable, with the object's name, if what it says cannot be read."""
    try:
        key = "" if kind in records.PEOPLE else found.key  # people may apply theirs without one
        record = unpacked(kind, bytes(found.record))
        return Stored(records.read(kind, key, record), found.metadata.version, found.epoch)
    except Unreadable as error:
        raise Unreadable(f"{KINDS[kind].plural}/{found.metadata.name}: {error}") from error


def unread_in(kind: type[Any], found: Object, namespace: str, why: str) -> Unread:
    plural, name = KINDS[kind].plural, found.metadata.name
    removal = f"kubectl -n {namespace} delete {plural}.{GROUP} {name}"
    return Unread(kind, key_in(kind, found), f"{plural}.{GROUP}/{name} in {namespace}", why, removal, found.epoch)


class _Keyed(msgspec.Struct):
    """The field that is the key, of the two kinds that people may write by hand."""

    id: str = ""
    scope: str = ""


def key_in(kind: type[Any], found: Object) -> str:
    """ "" if nobody can tell. Of people's records what they ask for counts, and not what they file it under."""
    if kind not in records.PEOPLE:
        return found.key
    try:
        inside = msgspec.json.decode(found.record, type=_Keyed)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return found.key
    return (inside.id if kind is Command else inside.scope) or found.key


def _labels(value: Value, ended: bool, consumed: bool) -> dict[str, str]:
    labels = {}
    if ended:
        labels[ENDED] = "true"
    if consumed:
        labels[CONSUMED] = "true"
    node = getattr(value, "node", "")
    if node and fits_label(node):
        labels[NODE] = node
    return labels


def fits_label(text: str) -> bool:
    return len(text) <= LONGEST_LABEL and _LABEL.fullmatch(text) is not None


name_of = names.object_name


# --- what a person sees -----------------------------------------------------------------------------------------------


def _case(case: Case) -> Shown:
    worst = max((d.severity for d in case.diagnoses), default=None)
    return {
        "node": case.node,
        "phase": str(case.phase),
        "since": _date(case.timeline[-1][1] if case.timeline else case.opened_at),
        "fault": ",".join(dict.fromkeys(d.fault for d in case.diagnoses)) or case.factor or "none",
        "severity": worst.name if worst is not None else "",
        "rung": str(case.rungs_tried[-1]) if case.rungs_tried else "",  # `case.rung` may be where a relapse begins
        "waiting": _awaited(case),
        "why": case.journal[-1].why if case.journal else "",
        "pool": case.pool,
        "opened": _date(case.opened_at),
    }


def about(value: Value) -> tuple[str, ...]:
    """What a person wants to read first: `kubectl describe` prints fields by name, and this one comes before all."""
    if not isinstance(value, LONG):
        return ()
    waits = KINDS[type(value)].show(value).get("waiting", "")
    head, *more = _about_case(value) if isinstance(value, Case) else _about_recovery(value)
    lines = [head, *([f"waits for {waits}"] if waits else []), *more]
    lines += [f"{_date(entry.at)} {entry.phase}: {entry.why}" for entry in value.journal[-MOST_ABOUT:]]
    story = f"case show {value.id}" if isinstance(value, Case) else f"why {value.job}"
    return tuple(line[:LONGEST_SHOWN] for line in (*lines, f"the whole story: sickbay {story}"))


def _about_case(case: Case) -> list[str]:
    shown = KINDS[Case].show(case)
    return [f"{case.factor or case.node} is {case.phase} since {shown.get('since', '')}: {shown['fault']}"]


def _about_recovery(recovery: Recovery) -> list[str]:
    since = next((_date(entry.at) for entry in reversed(recovery.journal) if entry.phase), "")
    again = "1 restart" if recovery.restarts == 1 else f"{recovery.restarts} restarts"
    nodes, suspects = ", ".join(recovery.nodes), ", ".join(recovery.suspects)
    lines = [
        f"{recovery.job} is {RECOVERY_WORDS[recovery.phase]}" + (f" since {since}" if since else ""),
        f"attempt {recovery.attempt} ({again}); {_steps(recovery)}",
        f"{len(recovery.nodes)} nodes: {nodes}" if len(recovery.nodes) != 1 else f"1 node: {nodes}",
    ]
    blame = f" (blame: {recovery.blame})" if recovery.blame is not None else ""
    return [*lines, *([f"not used again for it{blame}: {suspects}"] if suspects else [])]


def _steps(recovery: Recovery) -> str:
    """A job that tells none stands at 1 while it runs, and never saves."""
    if recovery.checkpoint_step < 0 and recovery.job_step <= 1:
        return "it tells no steps"
    began = f"checkpoint {recovery.checkpoint_step}" if recovery.checkpoint_step >= 0 else "no checkpoint"
    return f"last step seen {recovery.job_step}, begun from {began}"


def _awaited(case: Case) -> str:
    if case.phase in OVER:
        return ""
    if case.held:
        return "a person: held"
    if case.paused:
        return case.refusal or "the end of a pause"  # a common cause or an absence freezes a case as well
    if case.refusal:
        return case.refusal
    return f"{case.pending.verb} to answer" if case.pending is not None else ""


def _recovery(recovery: Recovery) -> Shown:
    return {
        "job": recovery.job,
        "phase": str(recovery.phase),
        "blame": str(recovery.blame or ""),
        "attempt": recovery.attempt,
        "restarts": recovery.restarts,
        "waiting": recovery.refusal or (f"{recovery.pending.verb} to answer" if recovery.pending is not None else ""),
        "why": recovery.journal[-1].why if recovery.journal else "",
        "nodes": len(recovery.nodes),
        "suspects": ",".join(recovery.suspects),
        "lostSteps": recovery.lost_steps,
        "owner": recovery.owner,
        "since": _date(recovery.down_since or 0.0),
    }


def _node_record(record: NodeRecord) -> Shown:
    return {
        "node": record.node,
        "cases": record.last_n,
        "latched": ",".join(dict.fromkeys(latch.fault for latch in record.latched)),
        "suspicion": ",".join(d.part or "node" for d in record.doubts if d.strikes),
        "instance": record.instance,
        "boot": record.boot_id,
    }


def _ledger(ledger: Ledger) -> Shown:
    return {
        "epoch": ledger.epoch,
        "seats": len(ledger.seats),
        "breaker": ledger.breaker or "closed",
        "lastPass": _date(ledger.last_pass),
        "watched": int(ledger.watch_time),
    }


def _part(part: Part) -> Shown:
    return {
        "serial": part.serial,
        "strikes": part.strikes,
        "condemned": part.condemned,
        "nodes": ",".join(part.nodes),
        "cases": ",".join(part.cases),
    }


def _command(command: Command) -> Shown:
    return {"verb": command.verb, "target": command.target, "by": command.by, "why": command.why}


def _pause(pause: Pause) -> Shown:
    return {"scope": pause.scope, "by": pause.by, "why": pause.why, "until": _date(pause.until) or "resumed"}


def _date(at: float | None) -> str:
    """RFC 3339, as a printer column of type date wants it; "" when there is none."""
    if not at or not 0 < at < 2**37:
        return ""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    plural: str
    _show: Callable[[Any], Shown]

    def show(self, value: Value) -> Shown:
        """Bounded: a line of a table, whatever a node printed."""
        return {
            column: text[:LONGEST_SHOWN] if isinstance(text, str) else text
            for column, text in self._show(value).items()
            if text != ""
        }


KINDS: Mapping[type[Any], Kind] = {
    Case: Kind("NodeCase", "nodecases", _case),
    Recovery: Kind("JobRecovery", "jobrecoveries", _recovery),
    NodeRecord: Kind("NodeRecord", "noderecords", _node_record),
    Ledger: Kind("Ledger", "ledgers", _ledger),
    Part: Kind("GpuPart", "gpuparts", _part),
    Command: Kind("Command", "commands", _command),
    Pause: Kind("Pause", "pauses", _pause),
}
