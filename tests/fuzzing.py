"""How many inputs a fuzz test tries: 2,000 for each parser, or what SICKBAY_FUZZ says (`make soak`: 100,000).

A parser with several properties shares them out: `EXAMPLES // 2` for each of two. Where drawing costs far more than
parsing, each drawn text is tried with its damaged forms: `EXAMPLES // FORMS` are drawn.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

EXAMPLES = int(os.environ.get("SICKBAY_FUZZ", "2000"))
FORMS = 8


def forms(text: str) -> Iterator[str]:
    """The text, and seven damaged forms of it: cut short, with a hole, a part twice, two characters exchanged."""
    yield text
    chance = Random(text)
    for damage in (_cut, _hole, _twice, _exchanged, _cut, _hole, _exchanged):
        yield damage(text, *sorted((chance.randint(0, len(text)), chance.randint(0, len(text)))))


def _cut(text: str, first: int, second: int) -> str:
    return text[:second]


def _hole(text: str, first: int, second: int) -> str:
    return text[:first] + text[second:]


def _twice(text: str, first: int, second: int) -> str:
    return text[:second] + text[first:]


def _exchanged(text: str, first: int, second: int) -> str:
    letters = list(text)
    if second < len(letters):
        letters[first], letters[second] = letters[second], letters[first]
    return "".join(letters)
