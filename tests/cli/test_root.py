"""The command's root: exit codes, messages, and that one sub-command never loads another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sickbay import __version__, cli
from sickbay.errors import UserError

from .builders import run_command

MODULES_AFTER = (
    "import sys; {act}; print('\\n'.join(m for m in sys.modules if m.startswith(('sickbay', 'typer', 'rich'))))"
)


def python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60, check=False)


def stand_in(monkeypatch: pytest.MonkeyPatch, action: object) -> None:
    """Let `sickbay nodes` do something else."""
    monkeypatch.setattr(cli, "load", lambda target: action)


def test_the_version_needs_neither_typer_nor_any_command() -> None:
    code = "from sickbay.cli import main\ntry: main(['--version'])\nexcept SystemExit: pass\n" + MODULES_AFTER.format(
        act="pass"
    )
    loaded = python(code).stdout.split()
    assert loaded[:2] == ["sickbay", __version__]
    assert set(loaded[2:]) == {"sickbay", "sickbay.cli", "sickbay.errors"}


def test_a_command_loads_no_other_command() -> None:
    loaded = python(MODULES_AFTER.format(act="from sickbay.cli import build; build('pause')")).stdout.split()
    assert "sickbay.cli.pause" in loaded
    assert not {"sickbay.cli.diagnose", "sickbay.cli.why", "sickbay.cli.sim", "rich.table"} & set(loaded)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_in_the_table_is_there_and_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = run_command(capsys, name, "--help")
    assert said.code == 0
    assert f"sickbay {name}" in said.out


def test_no_argument_prints_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    said = run_command(capsys)
    assert all(name in said.out + said.err for name in cli.COMMANDS)


def test_a_mistyped_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    said = run_command(capsys, "pauze")
    assert said.code == cli.UNABLE
    assert "pause" in said.err


def test_a_mistake_of_the_user_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistake() -> None:
        raise UserError("Say which.")

    stand_in(monkeypatch, mistake)
    said = run_command(capsys, "nodes")
    assert (said.code, said.out, said.err) == (2, "", "sickbay: Say which.\n")


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (BrokenPipeError(32, "Broken pipe"), 141)])
def test_interruption_and_a_closed_pipe_have_their_own_codes(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop() -> None:
        raise error

    stand_in(monkeypatch, stop)
    monkeypatch.setattr(sys, "stderr", sys.stderr)  # typer replaces both on a closed pipe: put them back
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    assert run_command(capsys, "nodes").code == code


def test_our_own_mistakes_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def bug() -> None:
        raise ZeroDivisionError

    stand_in(monkeypatch, bug)
    with pytest.raises(ZeroDivisionError):
        cli.main(["nodes"])


def test_output_into_a_closed_pipe_leaves_no_traceback(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    writer = subprocess.run(
        [sys.executable, "-m", "sickbay", "--version"],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(writing)
    assert (writer.returncode, writer.stderr) == (141, b"")
