"""The knowledge behind `core/blame`, as data: which words in a job's log speak of whom, and how often rightly.

Read from blame.toml by `reading`. Patterns stay text here: most commands never ask, and need not wait for them to be
compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sickbay.catalog.rows import Row
from sickbay.model import Blame

WHO = {member.value: member for member in Blame if member is not Blame.UNKNOWN}


@dataclass(frozen=True, slots=True)
class BlameRule:
    pattern: str  # a regular expression, in any case
    blame: Blame
    weight: float  # how often such a line, alone, is right about the cause
    source: str


@dataclass(frozen=True, slots=True)
class BlameTable:
    rules: tuple[BlameRule, ...] = ()  # first match per line wins
    hardware_xids: frozenset[int] = frozenset()
    application_xids: frozenset[int] = frozenset()
    plain_errors: frozenset[str] = frozenset()  # exceptions that are the program's own mistake
    shapes: str = ""  # what a RuntimeError says when it is one too
    outside: str = ""  # words in an exception's message that point outside of the program
    symptom: str = ""  # something went wrong, but not why
    talk: str = ""  # talk about an error is not an error
    witness: str = ""  # a rank that only missed its peer
    pcie: str = ""  # makes an otherwise undecided XID speak of hardware


PATTERNS = ("shapes", "outside", "symptom", "talk", "witness", "pcie")
RULE_COLUMNS = frozenset(BlameRule.__dataclass_fields__)


def read_blame(whole: Row, cite: Callable[[Row], tuple[str, ...]]) -> BlameTable:
    """ConfigError names the row that is wrong."""
    whole.only(frozenset({"rules", "xids", "errors", "words"}))
    xids, errors, words = (_part(whole, name) for name in ("xids", "errors", "words"))
    for part in (xids, errors, words):
        cite(part)
    return BlameTable(
        rules=tuple(_rule(whole, number, item, cite) for number, item in enumerate(whole.data.get("rules", ()))),
        hardware_xids=_numbers(xids, "hardware"),
        application_xids=_numbers(xids, "application"),
        plain_errors=frozenset(errors.texts("plain")),
        **{name: words.text(name) for name in PATTERNS},
    )


def _part(whole: Row, name: str) -> Row:
    data = whole.data.get(name)
    if not isinstance(data, dict):
        raise whole.wrong(name, "missing or not a table", f"write [{name}] and its columns below")
    return Row(whole.file, name, data)


def _rule(whole: Row, number: int, item: Any, cite: Callable[[Row], tuple[str, ...]]) -> BlameRule:
    if not isinstance(item, dict):
        raise whole.wrong("rules", f"not a table: {item!r}", "write [[rules]] and its columns below")
    row = Row(whole.file, f"rules[{number}]", item)
    row.only(RULE_COLUMNS)
    weight = float(row.number("weight"))
    if not 0 < weight < 1:
        raise row.wrong("weight", f"{weight} is out of range", "above 0, below 1")
    return BlameRule(row.text("pattern"), row.word("blame", WHO), weight, "; ".join(cite(row)))


def _numbers(row: Row, key: str) -> frozenset[int]:
    value = row.data.get(key)
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise row.wrong(key, f"missing or not a list of numbers: {value!r}", f"write {key} = [48, 79]")
    return frozenset(value)
