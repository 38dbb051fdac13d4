"""A training job's log: is this text one, and which of its lines matter?

`sickbay diagnose` uses it before `core/blame` judges. A job's log can blame, never open a case.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

MOST_LINES = 20_000
MOST_LINE = 2_000

# Every run in it is bounded: a repeat that may begin anywhere and go on for ever took minutes for one long number.
_MARKS = re.compile(
    r"Traceback \(most recent call last\)|^[ \t]{0,40}File \"[^\"\n]{1,400}\", line \d|ProcessGroupNCCL"
    r"|\bNCCL (?:INFO|WARN|version)|torch\.distributed"
    r"|CUDA error|CUDA out of memory|ChildFailedError|torchrun|deepspeed|\bepoch[ =:\[]*\d|\bloss[ =:]+[\d.]+"
    r"|\dit/s|\bstep[ =:\[]+\d"
    r"|\[rank ?\d{1,9}\]|slurmstepd|srun:|^\w{0,100}(?:Error|Exception): |exitcode\s*:|NET/(?:IB|OFI)|cudaError"
    r"|Assertion [^\n]{0,400}? failed|terminate called|^NVML: ?\w"
    r"|\bsbatch\b|\bmpirun\b|\btorch\.\w|\btensorflow\b|\bjax(?:lib)?\.",
    re.IGNORECASE | re.MULTILINE,
)


def looks_like(text: str) -> int:
    """How many different marks of a training log this text carries."""
    return len({found.group().lower()[:12] for found in _MARKS.finditer(text)})


def last_lines(chunks: Iterable[str]) -> list[str]:
    """The end of the log, bounded: causes stand near the end, and a log may be endless."""
    kept: deque[str] = deque(maxlen=MOST_LINES)
    rest = ""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split("\n")
        rest = rest[-MOST_LINE:]
        kept.extend(line[:MOST_LINE] for line in whole)
    if rest:
        kept.append(rest)
    return list(kept)
