"""The door for agents, over real HTTP on a loopback port: who gets in, and what the others are told."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sickbay.errors import UserError
from sickbay.model import Report
from sickbay.settings import IngestSettings
from sickbay.web import serve
from sickbay.web.ingest import MOST_BYTES, Desk, Ingest
from sickbay.web.limits import Rates
from sickbay.web.serve import Served
from sickbay.web.tokens import Secrets, make
from tests.controller.door import HandClock
from tests.web.letters import CLUSTER, NODE, SECRET, a_report, body, xid_79
from tests.web.posting import Counter, ask, opened, post


@pytest.fixture
def counter(tmp_path: Path) -> Iterator[Counter]:
    with opened(tmp_path) as counter:
        yield counter


def test_a_report_with_its_nodes_token_is_taken(counter: Counter) -> None:
    assert counter.post(a_report(xid_79())).status == 200
    (report,) = counter.taken
    assert [f.code for f in report.findings] == ["xid.79"]
    assert report.findings[0].received_at == counter.clock.now()


def test_without_a_token_nothing_is_taken_and_the_answer_says_how_to_get_one(counter: Counter) -> None:
    answer = post(counter.port, body(a_report()), None)
    assert (answer.status, counter.taken) == (401, [])
    assert "sickbay token NODE" in answer.words


def test_a_token_of_another_secret_is_refused(counter: Counter) -> None:
    assert counter.post(a_report(), secret=b"f" * 32).status == 403
    assert counter.taken == []


def test_a_token_cannot_speak_for_another_node(counter: Counter) -> None:
    answer = counter.post(a_report(xid_79(), node="node-0002"), node="node-0001")
    assert (answer.status, counter.taken) == (403, [])
    assert "cannot speak for 'node-0002'" in answer.words


def test_what_is_no_report_is_answered_with_what_is_wrong(counter: Counter) -> None:
    answer = post(counter.port, b'{"node": 7}', make(SECRET, CLUSTER, NODE))
    assert answer.status == 400
    assert "Report" in answer.words


@pytest.mark.parametrize("length", ["said", "unsaid"])
def test_a_body_past_the_bound_is_refused_whether_its_length_was_said_or_not(counter: Counter, length: str) -> None:
    token = make(SECRET, CLUSTER, NODE)
    raw = b" " * (MOST_BYTES + 1)
    if length == "said":
        assert post(counter.port, raw, token).status == 413
    else:
        head = f"POST /v1/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        with socket.create_connection(("127.0.0.1", counter.port), 20) as wire:
            wire.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n{len(raw):x}\r\n".encode() + raw)
            assert b" 413 " in wire.recv(100)
    assert counter.taken == []


def test_a_node_the_platform_does_not_show_yet_is_told_that_its_report_is_kept(counter: Counter) -> None:
    counter.says = "early"
    assert counter.post(a_report()).status == 202


def test_a_standby_takes_nothing_and_says_when_to_try_again(counter: Counter) -> None:
    counter.leads = False
    answer = counter.post(a_report())
    assert (answer.status, answer.retry_after, counter.taken) == (503, "5", [])
    assert "standing by" in answer.words
    assert ask(counter.port, "GET", "/healthz").words == "standing by"
    counter.leads = True
    assert ask(counter.port, "GET", "/healthz").words == "leading"


def test_a_node_that_floods_is_slowed_down_alone(tmp_path: Path) -> None:
    clock = HandClock()
    with opened(tmp_path, rates=Rates(clock, per_second=0.5, burst=3)) as counter:
        answers = [counter.post(a_report(sequence=n)) for n in range(5)]
        assert [a.status for a in answers] == [200, 200, 200, 429, 429]
        assert answers[-1].retry_after == "2"
        assert counter.post(a_report(node="node-0002"), node="node-0002").status == 200
        clock.passes(2)
        assert counter.post(a_report()).status == 200


def test_refusals_are_one_line_a_minute_for_each_kind(counter: Counter, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sickbay"):
        for _ in range(30):
            post(counter.port, b"", "v1.wrong.00")
            post(counter.port, b"", None)
        assert sorted(str(r.args[0]) for r in caplog.records if isinstance(r.args, tuple)) == [
            "no-token",
            "wrong-token",
        ]
        caplog.clear()
        counter.clock.passes(61)
        post(counter.port, b"", None)
    assert "29 more" in caplog.text


def test_our_own_mistake_is_not_the_agents(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Report) -> str:
        raise RuntimeError("a bug")

    (tmp_path / "secrets").write_bytes(SECRET)
    (tmp_path / "secrets").chmod(0o600)
    desk = Desk(broken, lambda: True, Secrets(str(tmp_path / "secrets")), CLUSTER, HandClock())
    served = Served(Ingest(desk).app(), IngestSettings(listen="127.0.0.1:0"))
    answer = post(served.port, body(a_report()), make(SECRET, CLUSTER, NODE))
    served.close()
    assert (answer.status, answer.retry_after) == (500, "30")
    assert "a bug" not in answer.words


def test_strange_requests_get_plain_answers(counter: Counter) -> None:
    assert ask(counter.port, "GET", "/v1/report").status == 405
    assert ask(counter.port, "GET", "/etc/passwd").status == 404
    with socket.create_connection(("127.0.0.1", counter.port), 20) as wire:
        wire.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        assert b" 400 " in wire.recv(100)
    assert counter.post(a_report()).status == 200


def test_a_connection_that_says_nothing_is_closed(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "REQUEST_S", 0.05)
    with socket.create_connection(("127.0.0.1", counter.port), 20) as wire:
        wire.sendall(b"POST /v1/rep")
        assert wire.recv(100) == b""


def test_a_busy_port_is_a_sentence_at_the_start(counter: Counter) -> None:
    app = Ingest(
        Desk(counter.take, lambda: True, Secrets(str(counter.folder / "secrets")), CLUSTER, counter.clock)
    ).app()
    with pytest.raises(UserError, match="is another one listening"):
        Served(app, IngestSettings(listen=f"127.0.0.1:{counter.port}"))
    with pytest.raises(UserError, match="an address and a port"):
        Served(app, IngestSettings(listen="8443"))
    with pytest.raises(UserError, match="cannot be used"):
        Served(app, IngestSettings(listen="127.0.0.1:0", cert_file=str(counter.folder / "none.pem")))


def test_it_leaves_no_thread_behind(tmp_path: Path) -> None:
    with opened(tmp_path) as counter:
        counter.post(a_report())
    assert not [t for t in threading.enumerate() if t.name == "ingest"]
