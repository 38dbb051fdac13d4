"""A bounded list of names in a sentence: written once, so that no notice of a thousand nodes has a thousand names.

Called by whoever in core and cli writes words. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST_NAMED = 20


def named(names: Sequence[str], most: int = MOST_NAMED, total: int | None = None) -> str:
    """The first of them, and how many more. `total`: how many there are, where not all are listed."""
    more = (len(names) if total is None else max(total, len(names))) - min(len(names), most)
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
