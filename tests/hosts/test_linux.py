"""The real host, on this machine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sickbay.hosts.linux import LinuxHost, environment
from sickbay.ports import Completed
from tests.hosts.hole import Hole, dig


@pytest.fixture
def host() -> LinuxHost:
    return LinuxHost("here")


class Metadata(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = {"/type": 200, "/gone": 404, "/moved": 302}.get(self.path, 200)
        body = b"x" * (3 << 20) if self.path == "/big" else f"{self.path} {self.headers.get('X-Token')}".encode()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/type")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_it_reads_this_machine(host: LinuxHost) -> None:
    assert float((host.read("/proc/uptime") or "").split()[0]) > 0
    assert "self" in (host.names("/proc") or ())
    assert len(host.boot_id()) == 36
    assert host.run(("echo", "hello"), 5).stdout == "hello\n"


def test_what_is_not_there_is_none(host: LinuxHost) -> None:
    assert host.read("/proc/no-such-thing") is None
    assert host.names("/proc/no-such-thing") is None
    assert host.read("/proc") is None
    assert host.run(("no-such-tool",), 5).missing


def test_a_pipe_or_a_device_is_not_read(host: LinuxHost, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    began = time.monotonic()
    assert host.read(str(tmp_path / "pipe")) is None
    assert host.read("/dev/zero") is None
    assert time.monotonic() - began < 1


def test_a_large_file_is_bounded(host: LinuxHost, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"y" * (9 << 20))
    assert len(host.read(str(tmp_path / "big")) or "") == 8 << 20


def test_a_file_that_never_answers_does_not_hold_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sickbay.hosts.linux.READ_S", 0.2)
    folder = tmp_path / "hole"
    folder.mkdir()
    hole: Hole = dig(folder)
    try:
        host = LinuxHost("here")
        assert host.read(str(folder / "x")) is None
        assert host.names(str(folder / "y")) is None
        assert len(host.left_behind()) == 2
        assert host.read("/proc/uptime") is not None
    finally:
        hole.close()


def test_below_another_root_files_and_commands_are_that_machine_s(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "uptime").write_text("77.0 1.0\n")
    host = LinuxHost("here", root=str(tmp_path))
    assert host.read("/proc/uptime") == "77.0 1.0\n"
    assert host.run(("nvidia-smi", "-q"), 5).missing


class Recorded:
    """Children that run nothing: the machine's own root has no tool, every other place has it."""

    def __init__(self) -> None:
        self.ran: list[tuple[tuple[str, ...], str]] = []

    def run(self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str], tool: str) -> Completed:
        self.ran.append((tuple(argv), env.get("LD_LIBRARY_PATH", "")))
        if len(self.ran) == 1:
            return Completed(127, "", f"chroot: failed to run command '{argv[-1]}': No such file or directory")
        return Completed(0, "found", "")


@pytest.mark.parametrize(
    ("place", "inside", "program", "libraries"),
    [
        ("run/nvidia/driver/usr/bin", "/run/nvidia/driver", "nvidia-smi", ""),
        ("run/nvidia/driver/usr/local/bin", "/run/nvidia/driver", "nvidia-smi", ""),
        ("home/kubernetes/bin/nvidia/bin", "", "/home/kubernetes/bin/nvidia/bin/nvidia-smi",
         "/home/kubernetes/bin/nvidia/lib64"),
    ],
)  # fmt: skip
def test_a_driver_that_an_operator_installed_has_its_tools_in_its_own_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, inside: str, program: str, libraries: str
) -> None:
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "nvidia-smi").symlink_to("/somewhere/in/its/own/root")
    host, children = LinuxHost("here", root=str(tmp_path), environ={}), Recorded()
    monkeypatch.setattr(host, "_children", children)
    assert host.run(("nvidia-smi", "-L"), 5).stdout == "found"
    assert children.ran[1] == (("chroot", f"{tmp_path}{inside}", program, "-L"), libraries)


def test_a_tool_that_is_nowhere_or_not_the_drivers_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run/nvidia/driver/usr/bin").mkdir(parents=True)
    (tmp_path / "run/nvidia/driver/usr/bin/systemctl").touch()
    for tool in ("nvidia-smi", "systemctl"):
        host, children = LinuxHost("here", root=str(tmp_path)), Recorded()
        monkeypatch.setattr(host, "_children", children)
        assert host.run((tool,), 5).missing
        assert len(children.ran) == 1


def test_the_way_in_is_chroot(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("chroot needs root")
    host = LinuxHost("here", root="/./")
    assert host.run(("echo", "inside"), 5).stdout == "inside\n"
    assert host.run(("no-such-tool",), 5).missing
    assert host.run(("sh", "-c", "exit 127"), 5).code == 127


def test_metadata_is_fetched_directly_whatever_proxy_is_set(
    host: LinuxHost, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata address belongs to this machine: a proxy would answer for its own."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert host.fetch(f"{address}/type", 5, headers={"X-Token": "t"}) == "/type t"
    assert host.fetch(f"{address}/token", 5, method="PUT") == "/token None"


def test_only_a_plain_200_is_an_answer(host: LinuxHost, address: str) -> None:
    assert host.fetch(f"{address}/gone", 5) is None
    assert host.fetch(f"{address}/moved", 5) is None
    assert host.fetch("http://127.0.0.1:9/x", 1) is None
    assert host.fetch("file:///etc/passwd", 1) is None
    assert host.fetch("http://[broken", 1) is None
    assert len(host.fetch(f"{address}/big", 5) or "") == 1 << 20


def test_tools_are_found_where_they_live_and_speak_english() -> None:
    made = environment({"PATH": "/mine", "LC_ALL": "de_DE.UTF-8", "SLURM_JOB_ID": "7"})
    assert made["PATH"].startswith("/mine:")
    assert "/opt/amazon/efa/bin" in made["PATH"]
    assert (made["LC_ALL"], made["SLURM_JOB_ID"]) == ("C", "7")
