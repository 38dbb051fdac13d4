"""`sickbay inject`: refused unless allowed, says who did what, and touches nothing but what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sickbay.checks import rehearsal
from sickbay.cli import inject
from sickbay.cli.inject_sim import struck
from sickbay.errors import InputError, UserError
from sickbay.model import Severity
from sickbay.sim.faults import kinds
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed
from tests.cli.builders import run_command

XID = ("--xid", "79", "--device", "0000:3b:00")


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Settings that allow rehearsals, with a file in place of the kernel log's device."""
    (tmp_path / "kmsg").touch()
    file = tmp_path / "sickbay.toml"
    file.write_text(f'[agent]\nallow_inject = true\nkmsg = "{tmp_path / "kmsg"}"\n')
    return file


def test_it_is_refused_unless_the_settings_allow_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sickbay.toml"
    file.write_text(f'[agent]\nkmsg = "{tmp_path / "kmsg"}"\n')
    for what in (XID, ("--line", "x"), ("--dcgm-field", "230", "--value", "79")):
        said = run_command(capsys, "inject", *what, "--config", str(file))
        assert said.code == 2
        assert "allow_inject" in said.err
    assert not (tmp_path / "kmsg").exists()


def test_a_kernel_line_is_one_marked_record(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "inject", *XID, "--config", str(settings)).code == 0
    written = (settings.parent / "kmsg").read_text()
    assert written.startswith("<3>sickbay-rehearsal: NVRM: Xid (PCI:0000:3b:00): 79,")
    assert written.count("\n") == 1
    assert rehearsal.is_rehearsal(written[3:])


def test_everything_is_said_with_who_did_it(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sickbay.cli.person._name", lambda uid: "ada")
    said = run_command(capsys, "inject", *XID, "--config", str(settings))
    assert " ada writes to " in said.err
    assert "Xid (PCI:0000:3b:00): 79" in said.err


@pytest.mark.parametrize(
    "words", [(), ("--xid", "79"), (*XID, "--sim", "flood"), ("--xid", "79", "--device", "3b"), ("--line", "a\nb")]
)
def test_what_makes_no_sense_is_refused(
    settings: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert run_command(capsys, "inject", *words, "--config", str(settings)).code == 2
    assert (settings.parent / "kmsg").read_text() == ""


def test_a_device_that_cannot_be_written_is_said_in_plain_words(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (settings.parent / "kmsg").unlink()
    os.mkfifo(settings.parent / "kmsg")  # with nobody at its other end
    said = run_command(capsys, "inject", *XID, "--config", str(settings))
    assert said.code == 2
    assert "cannot write to" in said.err


def test_a_dcgm_field_is_given_to_dcgmi() -> None:
    host = SpokenHost({"dcgmi test": printed("Successfully injected field info.\n")})
    inject.into_dcgm(host, 230, "79", 0)
    assert host.asked == ["dcgmi test --inject --gpuid 0 -f 230 -v 79"]


@pytest.mark.parametrize(
    ("field", "value", "gpu"), [(0, "1", 0), (230, "x", 0), (230, "", 0), (230, "79", 99), (230, "1;2", 0)]
)
def test_a_field_that_does_not_exist_never_reaches_dcgmi(field: int, value: str, gpu: int) -> None:
    host = SpokenHost()
    with pytest.raises(InputError):
        inject.into_dcgm(host, field, value, gpu)
    assert host.asked == []


@pytest.mark.parametrize("answer", [MISSING, TIMED_OUT, printed("", 235, "Error: unable to establish a connection")])
def test_a_dcgm_that_does_not_take_it_is_said(answer: object) -> None:
    with pytest.raises(UserError, match="DCGM did not take it"):
        inject.into_dcgm(SpokenHost({"dcgmi": answer}), 230, "79", 0)  # type: ignore[dict-item]


def test_a_simulated_host_shows_what_the_real_checks_would_say(capsys: pytest.CaptureFixture[str]) -> None:
    said = run_command(capsys, "inject", "--sim", "gpu_lost_79", "--gpu", "2")
    assert said.code == 0
    assert "xid.79" in said.out
    assert "REBOOT" in said.out


@pytest.mark.parametrize("kind", kinds())
def test_every_illness_can_be_rehearsed(kind: str) -> None:
    assert all(finding.reason for finding in struck(kind, 1))


def test_a_failed_remap_is_seen_on_its_gpu() -> None:
    worst = max(struck("row_remap_failed_64", 3), key=lambda finding: finding.severity)
    assert (worst.severity, worst.traits.get("index", "3")) == (Severity.REPLACE, "3")


def test_an_unknown_illness_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    said = run_command(capsys, "inject", "--sim", "gpu_lost")
    assert said.code == 2
    assert "gpu_lost_79" in said.err
