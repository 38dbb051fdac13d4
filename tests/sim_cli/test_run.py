"""`sickbay sim run`: repeatable to the byte, honest about what it counts, clear about what it cannot do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sickbay.cli.sim import rows
from sickbay.errors import ConfigError, UserError
from sickbay.settings import Policy, Settings
from sickbay.sim.arms import ours, settings_of
from sickbay.sim.report import Report
from sickbay.sim.workload import Scene

NOISY = Scene(seed=3, nodes=16, days=0.6, preset="noisy", jobs="mix", scale=5.0)


@cache
def noisy() -> Report:
    return ours(NOISY, settings_of(None))


def sickbay(*words: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-m", "sickbay", *words], capture_output=True, text=True, env=env, timeout=120
    )


def timeless(printed: str) -> dict[str, Any]:
    """All but how long the machine took."""
    shown: dict[str, Any] = json.loads(printed)
    return {key: value for key, value in shown.items() if key not in ("seconds", "node_days_per_s")}


def test_the_same_seed_gives_the_same_trace_whatever_the_hash_seed() -> None:
    words = "sim run --seed 3 --nodes 16 --days 0.6 --preset noisy --jobs mix --scale 5 --json".split()  # noqa: SIM905
    first, second = sickbay(*words, hash_seed="1"), sickbay(*words, hash_seed="2")
    assert first.returncode == 0, first.stderr
    assert timeless(first.stdout) == timeless(second.stdout)
    assert timeless(first.stdout)["faults"] > 5


def test_another_seed_gives_another_trace() -> None:
    assert noisy().digest != ours(replace(NOISY, seed=4, days=0.2), settings_of(None)).digest


def test_every_case_of_a_run_is_counted_by_its_ending() -> None:
    result = noisy()
    assert result.cases is not None
    assert result.mttr is not None
    assert sum(result.cases.values()) >= result.mttr.cases + result.mttr.censored
    assert abs(sum(result.mttr.parts_s.values()) - result.mttr.mean_s) < 1e-6
    assert result.mttr.mean_s > 60.0  # a reboot takes minutes: less means that something was not counted


def test_a_policy_that_only_observes_takes_no_node_out() -> None:
    result = ours(NOISY, Settings(policy=Policy(max_verb="OBSERVE")))
    assert (result.disruptions, result.treatments, result.returned_sick) == (0, {}, 0)


def test_our_policy_returns_no_node_that_its_checks_would_find_sick() -> None:
    assert noisy().returned_sick == 0


def test_a_quiet_fleet_loses_only_what_starting_costs() -> None:
    calm = Scene(1, 16, 2.0, "llama3", "one", scale=0.0)
    result = ours(calm, settings_of(None))
    assert result.ettr is not None
    assert result.ettr == pytest.approx(1 - 300 / (2 * 86_400), abs=1e-3)  # JobSpec.init_s of the one attempt
    assert (result.faults, result.interruptions, result.disruptions) == (0, 0, 0)


def test_a_run_is_told_in_lines_for_people() -> None:
    told = "\n".join(rows(noisy()))
    for word in ("ETTR", "GPU-hours lost", "MTTR", "cases by ending", "with nothing wrong", "relapse", "node-days"):
        assert word in told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--nodes", "0"), "from 1 to 20,000"),
        (("--days", "-1"), "more than 0"),
        (("--preset", "llama4"), "llama3, rsc1, rsc2, noisy"),
        (("--jobs", "many"), "one, mix, small, none"),
        (("--policy", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_a_mistake_gets_a_sentence_and_no_traceback(words: tuple[str, ...], says: str) -> None:
    done = sickbay("sim", "run", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_policy_file_is_the_policy_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "p.toml"
    file.write_text('[policy]\nmax_verb = "CORDON"\n')
    monkeypatch.setenv("SICKBAY_POLICY_MAX_VERB", "REPLACE")  # a run depends on nothing but what was typed
    assert settings_of(file).policy.max_verb == "CORDON"
    with pytest.raises(ConfigError):
        settings_of(tmp_path / "none.toml")


def test_a_scene_refuses_what_cannot_be_simulated() -> None:
    with pytest.raises(UserError, match="times the preset"):
        Scene(scale=-1)
