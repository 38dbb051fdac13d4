"""Patterns that a job's owner wrote and the controller runs: only such as cannot take for ever on any line.

Called by progress.py. Python's engine tries one way after the other and holds up all threads meanwhile, so the ways are
counted before a pattern is used. What is repeated must be one character or class; a repeat, an option and a choice
count for as many ways as they have, unless the next character already says which one it is. Pure, but for the budget.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from sickbay.errors import InputError
from sickbay.platforms.kubernetes.gangs import words

MOST_PATTERN = 200
LINE, UNSURE_LINE = 400, 200  # characters looked at; the second where there is more than one way through them
MOST_WAYS = 2 * UNSURE_LINE + 2  # from one place of a line: one `.*` and one choice of two
BUDGET_S = 0.25  # for all lines of one reading
MOST_KNOWN = 1024

Charset = frozenset[str]
ASCII = frozenset(map(chr, range(128)))
OTHERS = frozenset("é٣\u2003☃")  # a letter, a digit, a space and a sign, for all that is not ASCII
EVERY = ASCII | OTHERS
CATEGORY = {
    "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s", "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
}  # fmt: skip


class TooDear(InputError):
    """A pattern that is none, or that could take too long."""


@dataclass(frozen=True, slots=True)
class Pattern:
    search: re.Pattern[str]
    line: int  # characters of a line that are looked at


_slow: OrderedDict[str, None] = OrderedDict()  # that were used once and took too long


def found(lines: Iterable[str], pattern: str) -> Iterator[int]:
    """The number in each line that has one, in the order of the lines. TooDear when the pattern is not used."""
    how, end = compiled(pattern), time.monotonic() + BUDGET_S
    for line in lines:
        match = how.search.search(line[: how.line])
        text = (match.group(1 if how.search.groups else 0) or "") if match else ""
        if (step := words.number(text, -1)) >= 0:
            yield step
        if time.monotonic() > end:
            _slow[pattern] = None
            while len(_slow) > MOST_KNOWN:
                _slow.popitem(last=False)
            raise TooDear(f"the pattern {pattern} took too long on these lines")


def compiled(pattern: str) -> Pattern:
    made = _compiled(pattern) if pattern not in _slow else "it once took too long"
    if isinstance(made, str):
        raise TooDear(f"the pattern {pattern[:MOST_PATTERN]} is not used: {made}")
    return made


@lru_cache(maxsize=MOST_KNOWN)
def _compiled(pattern: str) -> Pattern | str:
    """Ready for use, or why it is not used."""
    if len(pattern) > MOST_PATTERN:
        return f"it is longer than {MOST_PATTERN} characters"
    try:
        ways = _ways(list(parser.parse(pattern)), ())
        if ways > MOST_WAYS:
            return "its repeats overlap, and on a long line there are too many ways to try"
        return Pattern(re.compile(pattern), LINE if ways == 1 else UNSURE_LINE)
    except TooDear as why:
        return str(why)
    except (re.error, RecursionError, OverflowError, ValueError) as error:
        return f"it is no pattern ({error})"


# --- counting the ways ------------------------------------------------------------------------------------------------

Node = tuple[Any, Any]  # of the parser: what it is, and its parts


def _ways(nodes: Sequence[Node], after: Sequence[Node]) -> int:
    """How many ways there are through `nodes` from one place, when `after` must come next."""
    ways = 1
    for i, node in enumerate(nodes):
        ways *= _ways_of(node, (*nodes[i + 1 :], *after))
        if ways > MOST_WAYS:
            break
    return ways


def _ways_of(node: Node, after: Sequence[Node]) -> int:
    kind, parts = str(node[0]), node[1]
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        return _ways_of_repeat(*parts, after=after)
    if kind == "SUBPATTERN":
        return _ways(list(parts[-1]), after)
    if kind == "BRANCH":
        return sum(_ways(list(one), after) for one in parts[1])
    if kind != "AT":
        _charset(node)  # what this cannot read is not used
    return 1


def _ways_of_repeat(least: int, most: int, inner: Sequence[Node], *, after: Sequence[Node]) -> int:
    body = list(inner)
    if len(body) != 1 or str(body[0][0]) in ("SUBPATTERN", "BRANCH", "MAX_REPEAT", "MIN_REPEAT"):
        if int(most) > 1:
            raise TooDear("it repeats a group: only a single character or class may be repeated")
        return 1 + _ways(body, after)
    if not _charset(body[0]) & _first(after):
        return 1  # the next character says where it ends
    return min(int(most), UNSURE_LINE) - min(least, UNSURE_LINE) + 1


def _first(nodes: Sequence[Node]) -> Charset:
    """The characters that may come first in `nodes`."""
    seen: Charset = frozenset()
    for kind, parts in nodes:
        name = str(kind)
        if name == "AT":
            continue
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            seen |= _first(list(parts[2]))
            if parts[0] == 0:
                continue
        elif name == "SUBPATTERN":
            seen |= _first(list(parts[-1]))
        elif name == "BRANCH":
            seen = seen.union(*(_first(list(one)) for one in parts[1]))
        else:
            seen |= _charset((kind, parts))
        if not _may_be_empty(name, parts):
            break
    return seen


def _may_be_empty(name: str, parts: Any) -> bool:
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        return parts[0] == 0 or _all_empty(parts[2])
    if name == "SUBPATTERN":
        return _all_empty(parts[-1])
    if name == "BRANCH":
        return any(_all_empty(one) for one in parts[1])
    return name == "AT"


def _all_empty(nodes: Iterable[Node]) -> bool:
    return all(_may_be_empty(str(kind), parts) for kind, parts in nodes)


def _charset(node: Node) -> Charset:
    """What a single character may be, rather too much than too little: upper and lower case are one."""
    kind, parts = str(node[0]), node[1]
    if kind == "ANY":
        return EVERY
    if kind == "LITERAL":
        return _wide({chr(parts)})
    if kind == "NOT_LITERAL":
        return EVERY - {chr(parts)}
    if kind == "IN" and str(parts[0][0]) == "NEGATE":
        return EVERY - _members(parts[1:])
    if kind == "IN":
        return _wide(_members(parts))
    raise TooDear(f"it uses {kind.lower()}, which is not needed to find a number")


def _members(parts: Sequence[Node]) -> set[str]:
    seen: set[str] = set()
    for kind, what in parts:
        if str(kind) == "LITERAL":
            seen.add(chr(what))
        elif str(kind) == "RANGE":
            seen |= {chr(c) for c in (*range(what[0], min(what[1], 127) + 1), what[1])}
        else:
            seen |= {c for c in EVERY if re.match(CATEGORY[str(what)], c)}
    return seen


def _wide(chars: set[str]) -> Charset:
    both = chars | {c.lower() for c in chars} | {c.upper() for c in chars}
    return frozenset(both) | (frozenset() if both <= EVERY else OTHERS)
