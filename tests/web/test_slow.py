"""Slow strangers: whoever dawdles is shown out, and nobody can take all the places or files. Real sockets, loopback."""

from __future__ import annotations

import resource
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from sickbay.pages import AT_ONCE, Pages
from sickbay.source import source_of
from sickbay.web import serve, threshold
from sickbay.web.threshold import most_connections
from tests.web.letters import a_report
from tests.web.posting import Counter, ask, opened
from tests.web.test_agents_publisher import a_certificate

HEAD = b"GET /healthz HTTP/1.1\r\nHost: here\r\n"
SLOW = HEAD + b"Slow: "
PATIENCE_S = 20.0


@pytest.fixture
def counter(tmp_path: Path) -> Iterator[Counter]:
    with opened(tmp_path) as made:
        yield made


def connect(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE_S, source_address=(source, 0))


def hold(held: ExitStack, port: int, source: str = "127.0.0.1", says: bytes = b"") -> None:
    """One more that stays; it may be turned away at any moment."""
    with suppress(OSError):
        wire = held.enter_context(closing(connect(port, source)))
        wire.sendall(says)


def answer(wire: socket.socket) -> bytes:
    """One whole answer, head and body."""
    said = b""
    while not said.endswith(b"}\n"):
        said += (more := wire.recv(65_536))
        assert more, said
    return said


def is_shown_out(wire: socket.socket) -> bool:
    """Closed by the other side, while we say a byte now and then."""
    wire.settimeout(0.05)
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            wire.sendall(b"x")
            if wire.recv(65_536) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


# --- the ingest: every request has its time ---------------------------------------------------------------------------


def test_a_head_that_comes_byte_by_byte_has_its_time(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "REQUEST_S", 0.3)
    with closing(connect(counter.port)) as wire:
        wire.sendall(SLOW)
        assert is_shown_out(wire)


def test_so_has_a_second_head_on_the_same_connection(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "REQUEST_S", 0.3)
    with closing(connect(counter.port)) as wire:
        wire.sendall(HEAD + b"\r\n")
        assert b"200" in answer(wire)
        wire.sendall(SLOW)
        assert is_shown_out(wire)


def test_so_has_a_body_that_was_refused(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "REQUEST_S", 0.3)
    with closing(connect(counter.port)) as wire:
        wire.sendall(b"POST /v1/report HTTP/1.1\r\nHost: here\r\nContent-Length: 200000\r\n\r\n")
        assert b"401" in answer(wire)
        assert is_shown_out(wire)


def test_a_connection_at_rest_is_closed_after_a_while(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "KEEP_S", 0.3)
    with closing(connect(counter.port)) as wire:
        wire.sendall(b"POST /v1/report HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\n")
        assert b"401" in answer(wire)
        wire.sendall(b"body")  # only now the refused request is over, and nobody waits for anything
        assert wire.recv(100) == b""


def test_so_has_a_handshake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threshold, "HANDSHAKE_S", 0.3)
    cert, key = a_certificate(tmp_path)
    with opened(tmp_path, cert=cert, key=key) as counter:
        with closing(connect(counter.port)) as wire:
            assert wire.recv(100) == b""
        trusting = ssl.create_default_context(cafile=cert)
        with trusting.wrap_socket(connect(counter.port), server_hostname="127.0.0.1") as friend:
            friend.sendall(HEAD + b"\r\n")
            assert b"200" in answer(friend)


def test_an_agent_may_use_its_connection_for_longer_than_one_request_lasts(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "REQUEST_S", 0.5)
    with closing(connect(counter.port)) as wire:
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            wire.sendall(HEAD + b"\r\n")
            assert b"200" in answer(wire)


@pytest.mark.parametrize(("size", "status"), [(10_000, 200), (20_000, 431), (60_000, 431)])
def test_a_head_is_bounded_also_when_it_comes_in_one_piece(counter: Counter, size: int, status: int) -> None:
    with closing(connect(counter.port)) as wire:
        wire.sendall(HEAD + b"Large: " + b"x" * size + b"\r\n\r\n")
        said = wire.recv(65_536)
    assert said.startswith(f"HTTP/1.1 {status}".encode()) or (status == 431 and b" 400 " in said)


# --- the ingest: places -----------------------------------------------------------------------------------------------


def test_one_address_has_its_share_of_connections_and_others_have_theirs(
    counter: Counter, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as held:
        for _ in range(150):
            hold(held, counter.port, "127.0.0.2")
        assert counter.post(a_report()).status == 200
    said = [record for record in caplog.records if "connections_per_source" in record.getMessage()]
    assert len(said) == 1


def test_a_place_that_was_left_is_free_again(counter: Counter) -> None:
    for _ in range(3):
        with ExitStack() as held:
            for _ in range(60):
                hold(held, counter.port)
    until = time.monotonic() + PATIENCE_S
    while not _answers(counter.port):
        assert time.monotonic() < until


def test_there_are_fewer_places_than_files() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert most_connections() <= max(threshold.LEAST, soft - threshold.ROOM)


def test_a_machine_that_has_a_whole_network_of_addresses_is_one_source() -> None:
    assert source_of("2001:db8:1:2:3::4") == source_of("2001:db8:1:2::9") != source_of("2001:db8:1:3::9")
    assert source_of("::ffff:10.0.0.1") == source_of("10.0.0.1") == "10.0.0.1"


CHILD = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
from pathlib import Path
from sickbay.web import serve
from tests.web.posting import opened
serve.REQUEST_S = 3.0
with opened(Path(sys.argv[1]), cert=sys.argv[2], key=sys.argv[3]) as counter:
    print(counter.port, flush=True)
    sys.stdin.readline()
    print(len(open(Path(sys.argv[1]) / "file", "w").name) > 0, flush=True)  # what a store needs: a file
    sys.stdin.readline()
"""


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_thousand_slow_connections_from_many_addresses_leave_files_places_and_a_short_log(
    tmp_path: Path, tls: bool
) -> None:
    cert, key = a_certificate(tmp_path) if tls else ("", "")
    command = [sys.executable, "-c", CHILD, str(tmp_path), cert, key]
    root = Path(__file__).parents[2]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        port = int(child.stdout.readline())
        with ExitStack() as held:
            for n in range(1_010):
                hold(held, port, f"127.0.1.{1 + n % 20}", b"" if tls else SLOW)
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline().strip() == "True"
            if not tls:
                until = time.monotonic() + PATIENCE_S
                while not _answers(port):  # at the latest when the first of them have been shown out
                    assert time.monotonic() < until
                    time.sleep(0.1)
    finally:
        _, said = child.communicate("\n", timeout=60)
    assert len(said) < 10_000


def _answers(port: int) -> bool:
    try:
        return ask(port, "GET", "/healthz").status == 200
    except OSError:
        return False


# --- the pages --------------------------------------------------------------------------------------------------------


@pytest.fixture
def pages() -> Iterator[Pages]:
    made = Pages("127.0.0.1:0", {"/livez": lambda: (200, b"alive\n"), "/metrics": lambda: (200, b"m 1\n")}, "test")
    yield made
    made.close()


def test_slow_connections_keep_no_place_from_a_probe(pages: Pages) -> None:
    with ExitStack() as held:
        for _ in range(AT_ONCE * 4):
            hold(held, pages.port, says=SLOW)
        for _ in range(5):
            assert ask(pages.port, "GET", "/livez").status == 200


def test_a_request_that_never_ends_is_shown_out(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sickbay.pages.PATIENCE_S", 0.3)
    with closing(connect(pages.port)) as wire:
        wire.sendall(SLOW)
        assert is_shown_out(wire)


def reads_slowly(held: ExitStack, port: int, source: str) -> None:
    """Asks for a page that no buffer takes whole, and reads none of it."""
    wire = held.enter_context(closing(socket.socket()))
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_024)
    with suppress(OSError):
        wire.bind((source, 0))
        wire.connect(("127.0.0.1", port))
        wire.sendall(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")


@pytest.fixture
def large() -> Iterator[Pages]:
    table = {"/livez": lambda: (200, b"alive\n"), "/metrics": lambda: (200, b"m 1\n" * 750_000)}
    made = Pages("127.0.0.1:0", table, "test")
    yield made
    made.close()


@pytest.mark.parametrize("sources", [1, 2])
def test_readers_of_a_large_page_who_do_not_read_it_shut_nobody_out(large: Pages, sources: int) -> None:
    with ExitStack() as held:
        for n in range(AT_ONCE):
            reads_slowly(held, large.port, f"127.0.0.{2 + n % sources}")
        time.sleep(0.3)
        assert _answers_soon(large.port)


def test_so_do_those_of_many_addresses_after_a_few_seconds(large: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sickbay.pages.READ_S", 0.3)
    with ExitStack() as held:
        for n in range(3 * AT_ONCE):
            reads_slowly(held, large.port, f"127.0.0.{2 + n}")
        time.sleep(0.5)
        assert _answers_soon(large.port)


def test_who_reads_a_large_page_in_time_gets_all_of_it(large: Pages) -> None:
    with closing(connect(large.port)) as wire:
        wire.sendall(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
        read = 0
        while more := wire.recv(65_536):
            read += len(more)
    assert read > 3_000_000


def test_an_answer_that_nobody_reads_has_its_time(large: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sickbay.pages.ANSWER_S", 0.3)
    with ExitStack() as held:
        reads_slowly(held, large.port, "127.0.0.2")
        until = time.monotonic() + PATIENCE_S
        time.sleep(0.2)
        while large._server._visits:
            assert time.monotonic() < until
            time.sleep(0.05)


def _answers_soon(port: int) -> bool:
    """A probe waits three seconds and tries again."""
    until = time.monotonic() + 3.0
    while time.monotonic() < until:
        if _alive(port):
            return True
    return False


def _alive(port: int) -> bool:
    try:
        return ask(port, "GET", "/livez").status == 200
    except OSError:
        return False
