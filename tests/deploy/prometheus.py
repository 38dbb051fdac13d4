"""The real promtool, prometheus and alertmanager: the machine's, or out of the distribution's packages (tools/testbed).

With CI=true a missing one fails; elsewhere it is said aloud at the end of the run. Used by the tests of the rules, of
the dashboards, of the controller's /metrics and of the alerts' door.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from testbed.binaries import Missing, built

RULES = Path(__file__).parents[2] / "deploy" / "prometheus"


def tool(name: str) -> str:
    """The tool's path, or the test is skipped (with CI=true: failed) with one line that says how to get it."""
    try:
        return str(built(name))
    except Missing as why:
        words = f"NOT TESTED with the real {name}: {why} -- install your distribution's packages of it"
        if os.environ.get("CI") == "true":
            pytest.fail(words)
        pytest.skip(words)


def promtool(*words: str) -> str:
    """What it says; it must end well."""
    ended = subprocess.run([tool("promtool"), *words], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr
