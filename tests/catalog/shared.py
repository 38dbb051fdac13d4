"""Where the recorded vendor tables are, when they are there. Read in place, never copied into this repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def table(name: str) -> Path:
    """A vendor table, or a loud skip: the tests beside this one still hold without it."""
    shared = Path(os.environ.get("SICKBAY_SHARED", ROOT.parent / "shared"))
    path = shared / "catalog" / name
    if not path.exists():
        assert not (os.environ.get("CI") == "true" and shared.exists()), f"{path} is missing though its folder is there"
        pytest.skip(f"VENDOR TABLE NOT THERE, not compared: {name} (set SICKBAY_SHARED)")
    return path
