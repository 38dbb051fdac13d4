"""Our plug-in and monitor under the real node-problem-detector: what the node's condition becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from .detector import Condition, Detector, running
from .verdicts import FELL_OFF, verdict, write

DOWN = 'problem_gauge{reason="GPUsAreDown",type="GPUProblem"}'
EVENTS = 'problem_counter{reason="GPUsAreDown"}'


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


def restarted_on(verdict_file: dict[str, object], binary: str, folder: Path, state: Path) -> list[Condition]:
    """Every condition that a newly started detector reports until it has reported three."""
    write(state, verdict_file)
    with running(binary, folder, state) as npd:
        npd.wait(lambda: len(npd.conditions()) >= 3)
        return npd.conditions()


def test_the_condition_follows_the_verdict(npd_binary: str, tmp_path: Path, state: Path) -> None:
    write(state, verdict("pass"))
    with running(npd_binary, tmp_path, state) as npd:
        npd.wait_for("False", "gpus are up")
        npd.wait(lambda: npd.figure(DOWN) == 0)
        write(state, verdict("fail", FELL_OFF))
        npd.wait_for("True", FELL_OFF)
        npd.wait(lambda: npd.figure(DOWN) == 1)
        _said_in_the_originals_words(npd)
        write(state, verdict("warn", "remapped rows are rising on GPU 3"))
        npd.wait_for("False", "gpus are up")
        npd.wait(lambda: npd.figure(DOWN) == 0)


def _said_in_the_originals_words(npd: Detector) -> None:
    log = npd.log.read_text()
    assert f'Node condition GPUProblem is now: True, reason: GPUsAreDown, message: "{FELL_OFF}"' in log


def test_a_worse_reason_replaces_the_old_one_in_the_condition(npd_binary: str, tmp_path: Path, state: Path) -> None:
    write(state, verdict("fail", "row remapping is pending on GPU 3"))
    with running(npd_binary, tmp_path, state) as npd:
        npd.wait_for("True", "row remapping is pending on GPU 3")
        write(state, verdict("fail", FELL_OFF))
        npd.wait_for("True", FELL_OFF)


def test_without_an_agent_the_condition_is_unknown_and_no_event_cries_wolf(
    npd_binary: str, tmp_path: Path, state: Path
) -> None:
    """originals 003.5 #3: here Unknown says why, and a node that cannot be judged is no GPUsAreDown event a minute."""
    with running(npd_binary, tmp_path, state) as npd:
        npd.wait(lambda: len(npd.conditions()) >= 6)  # three rounds of both rules
        now = npd.condition()
        assert now is not None
        assert (now.status, now.message[:30]) == ("Unknown", "no verdict from the agent yet:")
        assert (npd.figure(DOWN), npd.figure(EVENTS)) == (0, 0)


def test_a_node_without_gpus_is_unknown(npd_binary: str, tmp_path: Path, state: Path) -> None:
    write(state, verdict(gpus=False))
    with running(npd_binary, tmp_path, state) as npd:
        npd.wait_for("Unknown", "this node has no GPUs")


def test_a_restart_of_the_detector_never_reports_a_sick_node_as_well(
    npd_binary: str, tmp_path: Path, state: Path
) -> None:
    """originals 003.5 #9: a False in between is a node back in service. The permanent rule is first, and alone."""
    said = restarted_on(verdict("fail", FELL_OFF), npd_binary, tmp_path, state)
    assert {condition.status for condition in said} == {"True"}


def test_a_plug_in_that_cannot_start_is_unknown(npd_binary: str, tmp_path: Path, state: Path) -> None:
    write(state, verdict("fail", FELL_OFF))
    with running(npd_binary, tmp_path, state) as npd:
        npd.wait_for("True", FELL_OFF)
        (tmp_path / "npd_check.py").unlink()
        npd.wait(lambda: (now := npd.condition()) is not None and now.status == "Unknown")
