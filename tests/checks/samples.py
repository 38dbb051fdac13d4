"""Where the recorded samples are, if they are. Tests use them when present; they are never copied into this"
" repository."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest


def folder() -> Path:
    shared = os.environ.get("SICKBAY_SHARED") or str(Path(__file__).resolve().parents[3] / "shared")
    path = Path(shared) / "samples"
    if not path.is_dir():
        assert not (os.environ.get("CI") == "true" and path.parent.exists()), f"{path} is missing, its folder is there"
        pytest.skip("RECORDED SAMPLES ABSENT: set SICKBAY_SHARED to judge the checks on them")
    return path


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder() / name).read_text().splitlines() if line.strip()]
