"""The nouns as JSON and back: what stores keep, what the CLI prints with --json, what agents send.

Called by stores/, cli/ and agent/. Severity travels by name, and the originals' word for REPLACE lives only here.
It must never decide anything nor change what a value means: decode(encode(x)) == x for every noun the store keeps.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from sickbay.errors import StoreError
from sickbay.model import Case, Diagnosis, Entry, Notice, Recovery, Severity
from sickbay.typed import built, decoder

SCHEMA = 1  # the newest shape of a record that this version can read
MAX_ENTRIES = 128  # plan, section 5: a case is one object of bounded size, also in a custom resource
MAX_BYTES = 64 * 1024
HEAD = 8  # the first entries tell why the case was opened; they are kept whatever comes after

T = TypeVar("T")
Bounded = TypeVar("Bounded", Case, Recovery)
Rewrite = Callable[[Any], Any]

_ORIGINALS = {Severity.REPLACE.name: "ISOLATE", Severity.NONE.name: "PASS"}
_FROM_ORIGINALS = {"": "NONE", **{theirs: ours for ours, theirs in _ORIGINALS.items()}}


# --- severity, in our words and in the originals' ---------------------------------------------------------------------


def to_originals(severity: Severity) -> str:
    """The word the original suite's labels, annotations and result files use: ISOLATE for our REPLACE."""
    return _ORIGINALS.get(severity.name, severity.name)


def from_originals(word: str) -> Severity:
    """Either vocabulary to a Severity; the originals write "" or PASS where nothing is wrong."""
    name = _FROM_ORIGINALS.get(word.strip().upper(), word.strip().upper())
    return _severity_named(name)


def _severity_named(name: object) -> Severity:
    if isinstance(name, str) and name in Severity.__members__:
        return Severity[name]
    raise StoreError(f"severity {name!r} is not one of {', '.join(Severity.__members__)}")


# --- encode -----------------------------------------------------------------------------------------------------------


def encode(value: object, cluster: str = "") -> bytes:
    """One JSON object. Records carry their own `schema` and `cluster`; for other nouns the two are added."""
    kind: Any = type(value)
    if _rewrites(kind).untouched and _carries(kind):
        return _encoder().encode(value)
    return _encoder().encode(to_json(value, cluster))


def to_json(value: object, cluster: str = "") -> Any:
    """The same as plain dicts, lists, strings and numbers, for `--json` output and tests."""
    if isinstance(value, list | tuple):
        return [to_json(item, cluster) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_json(item, cluster) for key, item in value.items()}
    if isinstance(value, Severity):
        return value.name
    if not dataclasses.is_dataclass(value):
        return msgspec.to_builtins(value)
    kind: Any = type(value)
    tree = _rewrites(kind).out(msgspec.to_builtins(value))
    if not _carries(kind):
        tree = {**tree, "schema": SCHEMA, "cluster": tree.get("cluster", cluster)}
    return tree


# --- decode -----------------------------------------------------------------------------------------------------------


def decode(kind: type[T], data: bytes | str) -> T:
    """Read one object. Unknown extra fields are let through; a newer schema or anything unreadable is StoreError."""
    try:
        if _rewrites(cast(Any, kind)).untouched:
            return _newer_refused(kind, cast(T, decoder(kind).decode(data)))
        return from_json(kind, msgspec.json.decode(data))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _unreadable(kind, data, error) from error


def from_json(kind: type[T], tree: Any) -> T:
    """As decode, from dicts and lists; `tree` is changed in passing."""
    if not isinstance(tree, dict):
        raise StoreError(f"this is not a readable {kind.__name__}: not an object with fields, but {_shape(tree)}")
    _check_schema(kind, tree.get("schema", SCHEMA))
    try:
        return msgspec.convert(_rewrites(cast(Any, kind)).back(tree), built(kind))
    except (msgspec.MsgspecError, AttributeError, TypeError) as error:
        raise StoreError(f"this is not a readable {kind.__name__}: {error}") from error


def _shape(tree: Any) -> str:
    """What a JSON value is, in the words of whoever wrote it."""
    if tree is None:
        return "null"
    return {bool: "a truth value", str: "a text", list: "a list"}.get(type(tree), "a number")


def _newer_refused(kind: type[T], value: T) -> T:
    _check_schema(kind, getattr(value, "schema", SCHEMA))
    return value


def _check_schema(kind: type[Any], schema: object) -> None:
    if isinstance(schema, int) and schema > SCHEMA:
        raise StoreError(newer(kind, schema))


def newer(kind: type[Any], schema: int) -> str:
    return (
        f"this {kind.__name__} was written by a newer Sickbay (schema {schema}; this one reads up to {SCHEMA}): "
        "run the newer version, or point this one at another store"
    )


def _unreadable(kind: type[Any], data: bytes | str, error: Exception) -> StoreError:
    """A newer schema may also have changed a field's type: then the schema is the reason worth telling."""
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return StoreError(f"this is not a readable {kind.__name__}: not JSON ({error})")
    if isinstance(tree, dict):
        _check_schema(kind, tree.get("schema", SCHEMA))
    return StoreError(f"this is not a readable {kind.__name__}: {error}")


# --- built once per type ----------------------------------------------------------------------------------------------


@cache
def _encoder() -> msgspec.json.Encoder:
    return msgspec.json.Encoder()


@cache
def _carries(kind: type[Any]) -> bool:
    return {"schema", "cluster"} <= set(getattr(kind, "__dataclass_fields__", ()))


@dataclasses.dataclass(frozen=True, slots=True)
class _Rewrites:
    """msgspec writes an IntEnum as a number and has no hook for it: these put names in, and numbers back."""

    out: Rewrite
    back: Rewrite
    untouched: bool = False


_UNTOUCHED = _Rewrites(lambda tree: tree, lambda tree: tree, untouched=True)
_NAMED = _Rewrites(lambda number: Severity(number).name, lambda name: int(_severity_named(name)))


@cache
def _rewrites(hint: Any) -> _Rewrites:
    """Which part of a type's JSON holds a Severity, however deep; most types hold none and cost nothing."""
    if hint is Severity:
        return _NAMED
    if dataclasses.is_dataclass(hint):
        return _of_fields({name: _rewrites(part) for name, part in get_type_hints(hint).items()})
    origin, parts = get_origin(hint), [part for part in get_args(hint) if part is not Ellipsis]
    touched = [found for part in parts if not (found := _rewrites(part)).untouched]
    if not touched:
        return _UNTOUCHED
    if origin in (Union, types.UnionType):
        return _of_optional(touched[0])
    return _of_items(touched[0])


def _of_fields(fields: dict[str, _Rewrites]) -> _Rewrites:
    touched = {name: rewrites for name, rewrites in fields.items() if not rewrites.untouched}
    if not touched:
        return _UNTOUCHED
    out = {name: rewrites.out for name, rewrites in touched.items()}
    back = {name: rewrites.back for name, rewrites in touched.items()}
    return _Rewrites(lambda tree: _each_field(tree, out), lambda tree: _each_field(tree, back))


def _each_field(tree: Any, rewrite: Mapping[str, Rewrite]) -> Any:
    """What is no object stays as it is: msgspec then says which field it is and what it must be."""
    for name, change in rewrite.items():
        if isinstance(tree, dict) and name in tree:
            tree[name] = change(tree[name])
    return tree


def _of_items(inner: _Rewrites) -> _Rewrites:
    return _Rewrites(lambda tree: _each_item(tree, inner.out), lambda tree: _each_item(tree, inner.back))


def _each_item(tree: Any, change: Rewrite) -> Any:
    return [change(item) for item in tree] if isinstance(tree, list | tuple) else tree


def _of_optional(inner: _Rewrites) -> _Rewrites:
    return _Rewrites(
        lambda tree: None if tree is None else inner.out(tree),
        lambda tree: None if tree is None else inner.back(tree),
    )


# --- bounded size -----------------------------------------------------------------------------------------------------

# How hard texts are cut, mildest first: (characters a line, quoted lines a diagnosis). The next one is used only when
# the record is still too large with its journal down to the head.
_CUTS = ((512, 16), (160, 4), (48, 1))


def bound(record: Bounded) -> Bounded:
    """The same record within MAX_ENTRIES and MAX_BYTES. The first HEAD entries and the newest stay."""
    if _surely_small(record):
        return record
    smaller = record
    for characters, lines in _CUTS:
        smaller = _fit(_cut(record, characters, lines))
        if len(encode(smaller)) <= MAX_BYTES:
            break
    return smaller


def _surely_small(record: Case | Recovery) -> bool:
    """No encoding needed: it would fit even if every character took six bytes (\\u001b). So for nearly every commit."""
    if len(record.journal) > MAX_ENTRIES or (isinstance(record, Case) and len(record.timeline) > MAX_ENTRIES):
        return False
    texts = sum(len(entry.why) + 40 for entry in record.journal) + len(record.refusal)
    texts += sum(len(notice.title) + len(notice.body) + 60 for notice in record.notices)
    if isinstance(record, Case):
        if any(_long_winded(diagnosis) for diagnosis in record.diagnoses):
            return False
        texts += sum(sum(map(len, d.because)) + 100 for d in record.diagnoses) + sum(map(len, record.jobs_hurt))
    else:
        texts += sum(map(len, record.because)) + sum(map(len, record.tracebacks)) + sum(map(len, record.nodes))
        texts += sum(map(len, record.suspects))
    return texts * 6 < MAX_BYTES - 8192


def _long_winded(diagnosis: Diagnosis) -> bool:
    characters, lines = _CUTS[0]
    return len(diagnosis.because) > lines or any(len(line) > characters for line in diagnosis.because)


def _fit(record: Bounded) -> Bounded:
    """Drop entries after the head, oldest first, until the count and the size are right."""
    journal = record.journal
    room = MAX_BYTES - len(encode(dataclasses.replace(record, journal=(), dropped_entries=2**31)))
    head, tail = journal[:HEAD], journal[HEAD:]
    room -= sum(_size(entry) for entry in head)
    kept = 0
    for entry in reversed(tail[-(MAX_ENTRIES - HEAD) :]):
        room -= _size(entry)
        if room < 0:
            break
        kept += 1
    if kept == len(tail):
        return record
    dropped = record.dropped_entries + len(tail) - kept
    return dataclasses.replace(record, journal=head + tail[len(tail) - kept :], dropped_entries=dropped)


def _size(entry: Entry) -> int:
    return len(_encoder().encode(entry)) + 1  # and its comma


def _cut(record: Bounded, characters: int, lines: int) -> Bounded:
    journal = tuple(_cut_entry(entry, characters) for entry in record.journal)
    notices = tuple(_cut_notice(notice, characters * 8) for notice in record.notices)
    if isinstance(record, Case):
        diagnoses = tuple(_cut_diagnosis(diagnosis, characters, lines) for diagnosis in record.diagnoses)
        timeline = record.timeline
        if len(timeline) > MAX_ENTRIES:
            timeline = timeline[:HEAD] + timeline[HEAD - MAX_ENTRIES :]
        return dataclasses.replace(record, journal=journal, notices=notices, diagnoses=diagnoses, timeline=timeline)
    because = _cut_lines(record.because, characters, lines)
    tracebacks = tuple(_cut_text(text, characters * 16) for text in record.tracebacks[-lines:])
    return dataclasses.replace(record, journal=journal, notices=notices, because=because, tracebacks=tracebacks)


def _cut_entry(entry: Entry, characters: int) -> Entry:
    if len(entry.why) <= characters * 2:
        return entry
    return dataclasses.replace(entry, why=_cut_text(entry.why, characters * 2))


def _cut_notice(notice: Notice, characters: int) -> Notice:
    if len(notice.body) <= characters and len(notice.title) <= characters:
        return notice
    return dataclasses.replace(
        notice, title=_cut_text(notice.title, characters), body=_cut_text(notice.body, characters)
    )


def _cut_diagnosis(diagnosis: Diagnosis, characters: int, lines: int) -> Diagnosis:
    because = _cut_lines(diagnosis.because, characters, lines)
    return diagnosis if because == diagnosis.because else dataclasses.replace(diagnosis, because=because)


def _cut_lines(texts: tuple[str, ...], characters: int, lines: int) -> tuple[str, ...]:
    """The first lines: they are the ones that named the fault."""
    return tuple(_cut_text(text, characters) for text in texts[:lines])


def _cut_text(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"
