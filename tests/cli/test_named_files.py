"""A file that a person names is read or refused at once: a pipe under its name would wait for a writer for ever."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from starlette.applications import Starlette

from sickbay.agent.publishers.http import HttpPublisher
from sickbay.agent.publishers.spool import Spool
from sickbay.catalog import load as load_catalog
from sickbay.cli.check_run import identity
from sickbay.errors import UserError
from sickbay.kube.access import from_kubeconfig
from sickbay.notifiers.apprise import apprise_notifiers
from sickbay.notifiers.webhook import WebhookNotifier
from sickbay.settings import AgentSettings, IngestSettings
from sickbay.sim.host import SimHost
from sickbay.sim.world import World
from sickbay.web.serve import _config
from sickbay.web.tokens import Secrets

from .builders import run_command

KUBECONFIG = """\
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "https://a.example.com"}}]
users: [{name: a, user: %s}]
"""


@pytest.fixture(autouse=True)
def _in_no_time() -> Iterator[None]:
    def waited(number: int, frame: FrameType | None) -> None:
        raise AssertionError("it waits for somebody to write")

    before = signal.signal(signal.SIGALRM, waited)
    signal.setitimer(signal.ITIMER_REAL, 5.0)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize(
    "command",
    [
        ("config", "check"), ("config", "show", "--config"), ("nodes", "--config"), ("cases", "--config"),
        ("token", "gpu-1", "--config"), ("collect", "--config"), ("sweep", "--config"),
        ("controller", "run", "--config"), ("sim", "run", "--policy"), ("diagnose",),
    ],
)  # fmt: skip
def test_a_command_that_is_given_a_pipe_says_so_at_once(
    capsys: pytest.CaptureFixture[str], pipe: Path, command: tuple[str, ...]
) -> None:
    said = run_command(capsys, *command, str(pipe))
    assert said.code == 2
    assert f"{pipe}" in said.err
    assert "cannot be read: it is a pipe (FIFO), no plain file" in said.err


def test_what_is_no_file_is_named_as_what_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "door"))
    kinds = {tmp_path / "door": "a socket", tmp_path: "a folder", Path("/dev/zero"): "a device"}
    for path, kind in kinds.items():
        for command in (("config", "check"), ("diagnose",)):
            said = run_command(capsys, *command, str(path))
            assert (said.code, f"cannot be read: it is {kind}, no plain file" in said.err) == (2, True), said.err
    listening.close()


def _secrets(path: Path) -> object:
    return Secrets(str(path))


def _webhook(path: Path) -> object:
    return WebhookNotifier("https://chat.example.com/hook", "east-1", secret_file=str(path))


def _apprise(path: Path) -> object:
    return apprise_notifiers(str(path), "east-1")


def _profiles(path: Path) -> object:
    world = World(1, 1)
    host = SimHost(world, next(iter(world.nodes.values())))
    return identity(host, AgentSettings(profiles_file=str(path)), load_catalog())


def _kubeconfig(path: Path) -> object:
    return from_kubeconfig(path)


def _certificate(path: Path) -> object:
    whole = path.with_name("kubeconfig")
    whole.write_text(KUBECONFIG % f"{{client-certificate: {path}, client-key: {path}}}")
    return from_kubeconfig(whole)


def _token(path: Path) -> object:
    whole = path.with_name("kubeconfig")
    whole.write_text(KUBECONFIG % f"{{tokenFile: {path}}}")
    return from_kubeconfig(whole).token()


def _ingest(path: Path) -> object:
    return _config(Starlette(), IngestSettings(cert_file=str(path)))


def _authority(path: Path) -> object:
    return HttpPublisher("https://127.0.0.1:1", Spool(path.with_name("spool"), 1 << 20), ca_file=str(path))._connected()


READERS = [_secrets, _webhook, _apprise, _profiles, _kubeconfig, _certificate, _token, _ingest, _authority]


@pytest.mark.parametrize("read", READERS)
def test_a_pipe_that_the_settings_name_is_refused_as_one(pipe: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises((UserError, OSError), match=r"it is a pipe \(FIFO\), no plain file"):
        read(pipe)


@pytest.mark.parametrize("command", [("config", "check"), ("diagnose", "--kind", "kernel")])
def test_a_stream_that_a_shell_opened_for_us_is_read_to_its_end(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    """`sickbay config check <(helm template ...)`; /dev/stdin is the same of descriptor 0."""
    ours, theirs = os.pipe()
    os.write(theirs, b"# one line\n")
    os.close(theirs)
    said = run_command(capsys, *command, f"/dev/fd/{ours}")
    os.close(ours)
    assert "good" in said.out or "1 line" in said.out, said.err


def test_standard_input_by_its_name_is_read_as_ever(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("[policy]\nmax_verb = 'REBOOT'\n")
    before, given = os.dup(0), os.open(tmp_path / "s.toml", os.O_RDONLY)
    os.dup2(given, 0)
    try:
        assert "REBOOT" in run_command(capsys, "config", "check", "/dev/stdin").out
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(given)
