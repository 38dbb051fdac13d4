"""Who is to blame for a job that failed: hardware, infrastructure, its own code, or nobody we can name.

`core/recover` and `sickbay diagnose` ask it about a job's log. Pure: what the words of a log mean is data
(catalog/blame.toml). A job's log can blame, never open a case; a program error is never called hardware; watchdog
time-outs and signals passed on between ranks are symptoms, not causes. Callers that would refuse a restart because of
"user-code" should ask for `confidence >= SURE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from sickbay import catalog
from sickbay.catalog.blame import BlameTable
from sickbay.model import Blame

SURE = 0.7
MOST_LINES = 20_000
MOST_QUOTES = 4


@dataclass(frozen=True, slots=True)
class BlameVerdict:
    blame: Blame
    confidence: float
    because: tuple[str, ...]
    traceback: str = ""  # equal for two failures of the same kind at the same place


@dataclass(frozen=True, slots=True)
class Clue:
    blame: Blame
    weight: float
    line: str
    at: int
    plain: bool = False  # an ordinary program error: nothing about GPUs, the network or storage in it


H, N, U = Blame.HARDWARE, Blame.INFRASTRUCTURE, Blame.USER_CODE

_XID = re.compile(r"\bXid\b(?: \((?:PCI:)?[^)\n]{7,40}\):)? (\d{1,3})((?:\s?/\s?\d{1,3})*)", re.IGNORECASE)
_CAUSED = re.compile(r"caused by previous Xid (\d+)")
_RANK = re.compile(r"^\s*(?:\[rank\s?\d+\]:|\d+:|\[\d+,\d+\]<std\w+>:|\(\w+ pid=\d+[^)]*\))\s?", re.IGNORECASE)

_RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Iteration|Interrupt)): ?(.*)$")
_FRAME = re.compile(r'^\s*File "([^"]+)", line \d+, in (\S+)')


@dataclass(frozen=True, slots=True)
class _Words:
    """A table ready to be used."""

    table: BlameTable
    rules: tuple[tuple[re.Pattern[str], Blame, float], ...]
    shapes: re.Pattern[str]
    outside: re.Pattern[str]
    symptom: re.Pattern[str]
    talk: re.Pattern[str]
    witness: re.Pattern[str]
    pcie: re.Pattern[str]


@lru_cache(maxsize=4)
def _words(table: BlameTable) -> _Words:
    rules = tuple((re.compile(rule.pattern, re.IGNORECASE), rule.blame, rule.weight) for rule in table.rules)
    texts = (table.shapes, table.outside, table.symptom, table.talk, table.witness, table.pcie)
    return _Words(table, rules, *(re.compile(text, re.IGNORECASE) for text in texts))


def _known(table: BlameTable | None) -> _Words:
    return _words(catalog.load().blame if table is None else table)


def blame(text_lines: Sequence[str], table: BlameTable | None = None) -> BlameVerdict:
    """The verdict on one log. Only its last 20,000 lines are read: causes stand near the end. `table`: the shipped one
    if not given."""
    words = _known(table)
    lines = [_RANK.sub("", line[:2000].rstrip()) for line in text_lines[-MOST_LINES:]]
    clues = list(_clues(lines, words))
    trace = signature(lines)
    return _weigh(clues, trace, _symptoms(lines, words))


def blame_gang(logs: Sequence[Sequence[str]], table: BlameTable | None = None) -> BlameVerdict | None:
    """The verdict on the logs of a gang's ranks; None if all are empty. A rank that says its peer went away is a
    witness, not a cause: fifteen of them must not outvote the one that says what it died of."""
    spoke = [log for log in logs if log]
    witness = _known(table).witness
    causes = [log for log in spoke if not any(witness.search(line) for line in log)]
    lines = [line for log in causes or spoke for line in log]
    return blame(lines, table) if lines else None


def _symptoms(lines: Sequence[str], words: _Words) -> tuple[str, ...]:
    """What to quote when nothing names a cause: the first lines that at least say something went wrong."""
    found = (line.strip()[:300] for line in lines if words.symptom.search(line))
    return tuple("".join(c if c.isprintable() else " " for c in line) for line, _ in zip(found, range(2), strict=False))


def _clues(lines: Sequence[str], words: _Words) -> Iterator[Clue]:
    pcie = next((line for line in lines if words.pcie.search(line)), "")
    read: dict[str, Clue | None] = {}  # the ranks of a gang say the same, word for word
    for at, line in enumerate(lines):
        if line not in read:
            read[line] = _ruled(line, at, words) or _xid(line, at, pcie, words) or _raised(line, at, words)
        if clue := read[line]:
            yield replace(clue, at=at)


def _ruled(line: str, at: int, words: _Words) -> Clue | None:
    for pattern, who, weight in words.rules:
        if found := pattern.search(line):
            if who is H and words.talk.search(line[: found.end() + 20].replace(found.group(), " ")):
                return None
            return Clue(who, weight, line, at)
    return None


def _xid(line: str, at: int, pcie: str, words: _Words) -> Clue | None:
    numbers = [int(n) for found in _XID.finditer(line) for n in re.findall(r"\d+", found.group(1) + found.group(2))]
    numbers += [int(n) for n in _CAUSED.findall(line)]
    if not numbers or words.talk.search(line):
        return None
    if words.table.hardware_xids.intersection(numbers):
        return Clue(H, 0.9, line, at)
    if words.table.application_xids.intersection(numbers):
        return Clue(U, 0.6, line, at)
    return Clue(H, 0.6, f"{pcie} | {line}", at) if pcie else None


def _raised(line: str, at: int, words: _Words) -> Clue | None:
    """A Python exception's last line that is plainly the program's own mistake."""
    found = _RAISED.match(line.strip())
    if found is None:
        return None
    kind, said = found.group(1).rpartition(".")[2], found.group(2)
    if words.outside.search(said) or (kind == "FileNotFoundError" and "/dev/" in said):
        return None
    if kind in words.table.plain_errors or (kind == "RuntimeError" and words.shapes.search(said)):
        return Clue(U, 0.9, line.strip(), at, plain=True)
    return None


def _weigh(clues: Sequence[Clue], trace: str, symptoms: tuple[str, ...]) -> BlameVerdict:
    strongest = {
        who: max((c for c in clues if c.blame is who), key=lambda c: (c.weight, -c.at), default=None)
        for who in (H, N, U)
    }
    hard, infra, user = strongest[H], strongest[N], strongest[U]
    plain = next((c for c in clues if c.plain), None)
    if hard and plain:  # both, and a user's bug must never be called hardware
        return BlameVerdict(Blame.UNKNOWN, 0.4, _quotes(hard, plain), trace)
    if hard:
        return _verdict(hard, clues, trace)
    if infra and user and (user.weight <= infra.weight or (infra.at < user.at and not user.plain)):
        return _verdict(infra, clues, trace)
    chosen = user or infra
    if chosen is None:
        return BlameVerdict(Blame.UNKNOWN, 0.3, symptoms, trace)
    return _verdict(chosen, clues, trace)


def _verdict(chosen: Clue, clues: Sequence[Clue], trace: str) -> BlameVerdict:
    same = [c for c in clues if c.blame is chosen.blame]
    agreeing = len({c.line for c in same}) > 1 and chosen.weight < 0.95
    contested = any(c.blame is not chosen.blame and c.weight >= chosen.weight for c in clues)
    confidence = chosen.weight + (0.03 if agreeing else 0.0) - (0.15 if contested else 0.0)
    return BlameVerdict(chosen.blame, round(confidence, 2), _quotes(chosen, *same), trace)


def _quotes(*clues: Clue) -> tuple[str, ...]:
    kept: dict[str, None] = {}
    for clue in clues:
        kept.setdefault("".join(c if c.isprintable() else " " for c in clue.line[:300]).strip())
    return tuple(kept)[:MOST_QUOTES]


def signature(lines: Sequence[str]) -> str:
    """The first Python traceback as one comparable line: error, message without numbers, and where it came from."""
    begin = next(
        (n for n, line in enumerate(lines) if line.lstrip().startswith("Traceback (most recent call last)")), None
    )
    if begin is None:
        return ""
    frames: list[str] = []
    for line in lines[begin + 1 : begin + 200]:
        if frame := _FRAME.match(line):
            frames.append(f"{frame.group(1).rpartition('/')[2]}:{frame.group(2)}")
        elif raised := _RAISED.match(line.strip()):
            said = re.sub(r"0x[0-9a-fA-F]+|\d+", "#", raised.group(2))[:120]
            return f"{raised.group(1)}: {said} @ {' > '.join(frames[-5:])}"
    return f"? @ {' > '.join(frames[-5:])}"
