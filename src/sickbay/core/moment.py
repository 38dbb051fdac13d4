"""A wall time for people, always UTC and always saying so. Called by core/explain.py and cli/words.py. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
