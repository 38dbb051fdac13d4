"""The agent as operators meet it: real processes, a FIFO as kernel log, a real server, kill -9 and restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sickbay.checks import rehearsal
from sickbay.cli.agent import main
from tests.agent.running import Running
from tests.agent.test_publishers import Ingest

LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
WATCHED = "NVRM: Xid (PCI:0000:86:00): 13, pid=1234, name=python, Graphics SM Warp Exception"
MEMORY = "NVRM: Xid (PCI:0000:86:00): 95, pid=1234, name=python, Uncontained: FBHUB. RST: Yes, D-RST: No"
NOISE = "usb 1-1: new high-speed USB device"


@pytest.fixture
def ingest() -> Iterator[Ingest]:
    made = Ingest()
    yield made
    made.close()


@pytest.fixture
def agent(tmp_path: Path, ingest: Ingest) -> Iterator[Running]:
    made = Running(tmp_path, ingest_url=ingest.url)
    yield made
    made.close()


def counts(ingest: Ingest, code: str) -> list[int]:
    """How often each report says the code was seen, in the order of the reports."""
    return [f.count for report in ingest.taken for f in report.findings if f.code == code]


def passed(ingest: Ingest) -> bool:
    return any(f.check == "nvidia-smi" and f.status == "OK" for report in ingest.taken for f in report.findings)


def test_an_xid_arrives_and_sigterm_ends_it_with_code_0_and_clears_nothing(agent: Running, ingest: Ingest) -> None:
    """originals 002.12 #6: SIGTERM removed the unhealthy taint."""
    agent.start()
    assert ingest.wait(lambda: passed(ingest)), agent.log
    agent.until(lambda: agent.verdict().get("status") == "pass")
    agent.kernel(NOISE, LOST)
    assert ingest.wait(lambda: counts(ingest, "xid.79") == [1]), agent.log
    finding = next(f for f in ingest.taken[-1].findings if f.code == "xid.79")
    assert finding.place.device == "0000:3b:00"
    assert agent.end() == 0
    assert "Traceback" not in agent.log
    verdict = agent.verdict()
    assert (verdict["status"], verdict["severity"]) == ("fail", "REBOOT")
    before = len(ingest.taken)
    agent.start()
    assert ingest.wait(lambda: len(ingest.taken) > before)
    assert [f.id for f in ingest.taken[before].findings if f.code == "xid.79"] == [finding.id]


def test_kill_9_loses_no_line_and_counts_none_twice(agent: Running, ingest: Ingest) -> None:
    agent.start()
    agent.kernel(LOST, MEMORY)
    assert ingest.wait(lambda: bool(counts(ingest, "xid.95"))), agent.log
    agent.kill()
    agent.kernel(NOISE, MEMORY, MEMORY)  # while nobody was there
    agent.start()
    assert ingest.wait(lambda: counts(ingest, "xid.95")[-1:] == [3]), agent.log
    agent.kill()
    agent.start()
    agent.kernel(MEMORY)
    assert ingest.wait(lambda: counts(ingest, "xid.95")[-1:] == [4]), agent.log
    assert set(counts(ingest, "xid.79")) == {1}
    by_number = {report.sequence: report for report in ingest.taken}
    assert all(by_number[report.sequence] == report for report in ingest.taken)  # sent again is the same again


def test_what_was_said_while_the_controller_was_away_arrives_after_a_kill(tmp_path: Path, ingest: Ingest) -> None:
    port = ingest.url.rpartition(":")[2]
    ingest.answers = [503] * 10_000
    agent = Running(tmp_path, ingest_url=f"http://127.0.0.1:{port}")
    try:
        agent.start()
        agent.kernel(LOST)
        agent.until(lambda: agent.verdict().get("status") == "fail")
        agent.until(lambda: bool(os.listdir(tmp_path / "state" / "spool")))
        agent.kill()
        assert not ingest.taken
        ingest.answers = []
        agent.start()
        assert ingest.wait(lambda: bool(counts(ingest, "xid.79"))), agent.log
        assert [report.sequence for report in ingest.taken] == sorted(report.sequence for report in ingest.taken)
    finally:
        agent.close()


def test_an_operators_word_clears_within_seconds(
    agent: Running, ingest: Ingest, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.start()
    assert ingest.wait(lambda: passed(ingest)), agent.log
    agent.kernel(LOST)
    agent.until(lambda: agent.verdict().get("status") == "fail")
    assert main(["clear", "--config", str(agent.folder / "sickbay.toml")]) == 2
    assert "--why" in capsys.readouterr().err
    assert main(["clear", "--config", str(agent.folder / "sickbay.toml"), "--why", "reseated"]) == 0
    agent.until(lambda: agent.verdict()["status"] == "pass")
    agent.until(lambda: "reseated" in agent.log)
    agent.until(lambda: os.listdir(agent.folder / "state" / "events") == [])


def test_two_agents_on_one_state_folder_are_refused(agent: Running, ingest: Ingest) -> None:
    agent.start()
    assert ingest.wait(lambda: bool(ingest.taken)), agent.log
    argv = [sys.executable, "-m", "sickbay", "agent", "--sim", "--config", str(agent.folder / "sickbay.toml")]
    second = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 2
    assert "another agent is running" in second.stderr
    assert "Traceback" not in second.stderr


STATE_FILES = (
    "events/x.json", "verdicts.json", "cursor.json", "series.json", "gpu-map.json", "kernel-mark.json",
    "reserved.json", "verdict.json", "reset.json", "agent.lock", "spool/00000000000000000001.json",
)  # fmt: skip


def test_a_pipe_in_the_place_of_any_state_file_neither_stops_it_nor_keeps_it_from_ending(
    agent: Running, ingest: Ingest
) -> None:
    """A FIFO in events/ held the main thread for ever: no report, and SIGTERM was not obeyed."""
    for name in STATE_FILES:
        (agent.folder / "state" / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(agent.folder / "state" / name)
    agent.start()
    assert ingest.wait(lambda: passed(ingest)), agent.log
    agent.until(lambda: "x.json is no event and was moved aside" in agent.log)
    agent.until(lambda: agent.verdict().get("status") == "pass")
    assert agent.end() == 0
    assert "Traceback" not in agent.log


def test_a_pipe_in_the_place_of_the_token_or_the_profiles_is_said_and_not_waited_for(
    tmp_path: Path, ingest: Ingest
) -> None:
    for name in ("token", "profiles.toml"):
        os.mkfifo(tmp_path / name)
    agent = Running(
        tmp_path,
        ingest_url=ingest.url,
        token_file=str(tmp_path / "token"),
        profiles_file=str(tmp_path / "profiles.toml"),
    )
    try:
        agent.start()
        agent.until(lambda: f"{tmp_path / 'token'} cannot be read" in agent.log)
        assert ingest.wait(lambda: bool(ingest.taken)), agent.log
        assert agent.end() == 0
        assert "no plain file" in agent.log
    finally:
        agent.close()


def test_a_forged_line_is_nothing_and_a_rehearsal_says_that_it_is_one(tmp_path: Path, ingest: Ingest) -> None:
    agent = Running(tmp_path, ingest_url=ingest.url, allow_inject=True)
    try:
        agent.start()
        agent.kernel(LOST, prefix=12)
        agent.kernel(rehearsal.xid_line(95, "0000:86:00"), prefix=12)
        assert ingest.wait(lambda: bool(counts(ingest, "xid.95"))), agent.log
        finding = next(f for f in ingest.taken[-1].findings if f.code == "xid.95")
        assert finding.reason.startswith("REHEARSAL")
        assert not counts(ingest, "xid.79")
    finally:
        agent.close()


def test_a_flood_neither_stops_it_nor_floods_the_controller(agent: Running, ingest: Ingest) -> None:
    agent.start()
    assert ingest.wait(lambda: passed(ingest)), agent.log
    before = len(ingest.taken)
    agent.kernel(*([WATCHED] * 20_000), LOST)
    assert ingest.wait(lambda: counts(ingest, "xid.13")[-1:] == [20_000] and bool(counts(ingest, "xid.79"))), agent.log
    assert len(ingest.taken) - before < 100


def test_a_mistake_in_the_settings_is_a_sentence_and_code_2(tmp_path: Path) -> None:
    (tmp_path / "sickbay.toml").write_text('[agent]\npublishers = ["htpp"]\n')
    argv = [sys.executable, "-m", "sickbay", "agent", "--config", str(tmp_path / "sickbay.toml")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert 'did you mean "http"' in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_is_as_clean_as_sigterm(agent: Running, ingest: Ingest) -> None:
    agent.start()
    assert ingest.wait(lambda: bool(ingest.taken)), agent.log
    assert agent.process is not None
    agent.process.send_signal(signal.SIGINT)
    assert agent.process.wait(30) == 0


HEAVY = (
    "typer",
    "rich",
    "click",
    "starlette",
    "uvicorn",
    "kubernetes",
    "boto3",
    "requests",
    "urllib3",
    "numpy",
    "asyncio",
)


def test_the_agents_process_carries_nothing_it_does_not_need() -> None:
    program = (
        "import sys; import sickbay.cli, sickbay.cli.agent, sickbay.agent.process, sickbay.agent.metrics, "
        "sickbay.hosts.linux; print(*sorted({name.partition('.')[0] for name in sys.modules}), "
        "*[name for name in sys.modules if name.startswith('sickbay.')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & set(HEAVY)
    assert not any(name.startswith(("sickbay.core", "sickbay.controller", "sickbay.stores")) for name in loaded)
