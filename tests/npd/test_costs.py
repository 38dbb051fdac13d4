"""What a call costs and touches: Python's own start and little more; no tool, no network, nothing of ours beside it."""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from sickbay.cli import npd_check

from .verdicts import FELL_OFF, verdict, write

PLUGIN = Path(npd_check.__file__)
DEPLOY = Path(__file__).parents[2] / "deploy" / "node-problem-detector"
CHECK_GPU = DEPLOY / "check_gpu.sh"
CALLS = 20

# What the interpreter itself reports about a run: every child, connection and opened file passes an audit hook.
WATCHED = """
import runpy, sys
seen = []
sys.addaudithook(lambda event, args: seen.append((event, str(args[:1]))))
sys.argv = [sys.argv[1], *sys.argv[2:]]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit:
    pass
for event, args in seen:
    print(event, args, file=sys.stderr)
"""
NEVER = (
    "socket.",
    "subprocess.",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.system",
    "os.spawn",
    "ctypes.",
    "urllib.",
)


def test_a_call_runs_no_tool_and_opens_no_connection(tmp_path: Path) -> None:
    """originals 003.5 #2: each rule on each node called the metadata service and the EC2 API once a minute.

    Also originals 003.5 #1 (a hard-coded region) and #3 (a metadata service out of a container's reach): there is no
    address in it to be wrong or out of reach.
    """
    write(tmp_path, verdict("fail", FELL_OFF))
    command = [sys.executable, "-ISE", "-c", WATCHED, str(PLUGIN), "--state-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == FELL_OFF + "\n"
    events = done.stderr.splitlines()
    assert any(f"{tmp_path}/verdict.json" in line for line in events), "the hook sees nothing"
    assert [line for line in events if line.startswith(NEVER)] == []


def test_the_file_runs_alone_without_sickbay() -> None:
    """The image of node-problem-detector gets this one file."""
    trees = [node for node in ast.walk(ast.parse(PLUGIN.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in trees for alias in node.names if isinstance(node, ast.Import)}
    assert names == {"json", "os", "stat", "sys", "time"}
    assert [node.module for node in trees if isinstance(node, ast.ImportFrom)] == ["__future__"]


def test_sickbay_npd_check_loads_nothing_but_its_file() -> None:
    code = (
        "import sys; from sickbay.cli import main\n"
        "try: main(['npd-check', '--state-dir', '/nowhere'])\n"
        "except SystemExit: print(*sorted(m for m in sys.modules if m.startswith(('sickbay', 'typer', 'rich'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[1].split() == ["sickbay", "sickbay.cli", "sickbay.cli.npd_check", "sickbay.errors"]


@pytest.mark.parametrize("command", [["-m", "sickbay", "npd-check"], ["-ISEB", str(PLUGIN)]], ids=["sickbay", "file"])
def test_a_call_costs_less_than_a_tenth_of_a_second(command: list[str], tmp_path: Path) -> None:
    """Processor time, so that a busy machine is not a failure; wall times by load are in docs/agent.md."""
    write(tmp_path, verdict("fail", FELL_OFF))
    spent = [_cpu_s([sys.executable, *command, "--state-dir", str(tmp_path)]) for _ in range(CALLS)]
    assert sorted(spent)[CALLS // 2] < 0.1


def _cpu_s(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, timeout=60, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_check_gpu(folder: Path, python: str = sys.executable, script: Path = CHECK_GPU) -> tuple[int, str]:
    env = {"PATH": os.environ["PATH"], "SICKBAY_PYTHON": python, "SICKBAY_AGENT__STATE_DIR": str(folder)}
    done = subprocess.run([str(script)], capture_output=True, text=True, timeout=60, env=env, check=False)
    return done.returncode, done.stdout


def laid_out(folder: Path) -> Path:
    """The two files beside each other, as the Dockerfile lays them out."""
    for file in (CHECK_GPU, PLUGIN):
        (folder / file.name).write_bytes(file.read_bytes())
        (folder / file.name).chmod(0o755)
    return folder / CHECK_GPU.name


def test_the_script_passes_the_answer_on(tmp_path: Path) -> None:
    """originals 003.5 #4: the exit code that was looked at was another program's."""
    script = laid_out(tmp_path)
    for status, code in (("pass", 0), ("warn", 0), ("fail", 1), ("unknown", 2)):
        write(tmp_path, verdict(status, "so it is"))
        assert run_check_gpu(tmp_path, script=script)[0] == code


@pytest.mark.parametrize("broken", ["exit 1", "echo oops >&2; exit 1", "kill -9 $$", "exit 127"])
def test_a_broken_python_never_says_that_gpus_are_down(broken: str, tmp_path: Path) -> None:
    """Python exits with 1 when it cannot start: a bad image must not cordon a fleet."""
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\n{broken}\n")
    python.chmod(0o755)
    code, line = run_check_gpu(tmp_path, str(python), laid_out(tmp_path))
    assert code == 2
    assert line.startswith("the check itself failed with code ")
    assert len(line) <= 81
