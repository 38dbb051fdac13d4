"""The webhook: signed, bounded, and discreet about its address."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
import time
from pathlib import Path

import pytest

from sickbay.controller.outbox import Outbox
from sickbay.errors import UserError
from sickbay.model import Done, Failed, Notice, Retry
from sickbay.notifiers import webhook
from sickbay.notifiers.log import LogNotifier
from sickbay.notifiers.webhook import WebhookNotifier

from .far_ends import Receiver

SECRET = "0123456789abcdef0123456789abcdef"
NOTICE = Notice("gpu-17.3/4", "urgent", "gpu-17 needs a person", "XID 79: the GPU is off the bus", "gpu-17.3", 1.8e9)


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    return str(path)


def test_a_receiver_of_the_originals_finds_its_keys_and_ours_beside_them(receiver: Receiver) -> None:
    """originals 000.7: {timestamp, error_type, node_name, instance_id, error_details, cluster_name}."""
    sender = WebhookNotifier(receiver.url, "prod", instance={"gpu-17": "i-0abc"}.__getitem__)
    assert sender.send(NOTICE) == Done()
    told = json.loads(receiver.posted[0].body)
    ours = told.pop("notice")
    assert told == {
        "timestamp": "2027-01-15T08:00:00Z",
        "error_type": "XID_CRITICAL_79",
        "node_name": "gpu-17",
        "instance_id": "i-0abc",
        "error_details": "gpu-17 needs a person\nXID 79: the GPU is off the bus",
        "cluster_name": "prod",
    }
    assert (ours["key"], ours["level"], ours["case"], ours["schema"]) == ("gpu-17.3/4", "urgent", "gpu-17.3", 1)


@pytest.mark.parametrize(
    ("level", "body", "kind"),
    [("warning", "XID 31", "XID_WARNING_31"), ("urgent", "it is hot", "GPU_HEALTH_ERROR"),
     ("warning", "it is warm", "GPU_HEALTH_WARNING"), ("info", "it is well", "GPU_HEALTH_INFO")],
)  # fmt: skip
def test_the_kind_of_error_is_in_the_originals_words(receiver: Receiver, level: str, body: str, kind: str) -> None:
    WebhookNotifier(receiver.url, "prod").send(Notice("k", level, "t", body))
    assert json.loads(receiver.posted[0].body)["error_type"] == kind


def test_a_receiver_can_check_who_sent_it_and_when(receiver: Receiver, secret_file: str) -> None:
    WebhookNotifier(receiver.url, "c", secret_file, clock=lambda: 1_700_000_000.9).send(NOTICE)
    (posted,) = receiver.posted
    expected = hmac.new(SECRET.encode(), b"1700000000." + posted.body, hashlib.sha256).hexdigest()
    assert posted.headers["X-Sickbay-Signature"] == f"t=1700000000,v1={expected}"


def test_a_secret_that_became_unreadable_sends_nothing_unsigned(receiver: Receiver, secret_file: str) -> None:
    sender = WebhookNotifier(receiver.url, "c", secret_file)
    Path(secret_file).unlink()
    said = sender.send(NOTICE)
    assert isinstance(said, Retry)
    assert "not sent unsigned" in said.why
    assert receiver.posted == []


@pytest.mark.parametrize("text", ["", "short"])
def test_a_secret_that_could_be_guessed_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "secret"
    path.write_text(text)
    with pytest.raises(UserError, match="could be guessed"):
        WebhookNotifier("https://x.example.com/", "c", str(path))


@pytest.mark.parametrize(
    ("status", "kind"),
    [*((status, Retry) for status in (302, 401, 403, 404, 408, 410, 429, 500, 503)),
     *((status, Failed) for status in (400, 413, 422))],
)  # fmt: skip
def test_what_is_about_the_way_there_is_tried_again_and_what_is_about_the_notice_is_not(
    receiver: Receiver, status: int, kind: type
) -> None:
    receiver.status = status
    assert isinstance(WebhookNotifier(receiver.url, "c").send(NOTICE), kind)


def test_the_wait_that_a_receiver_asks_for_is_kept(receiver: Receiver) -> None:
    receiver.status, receiver.headers = 429, {"Retry-After": "77"}
    assert WebhookNotifier(receiver.url, "c").send(NOTICE) == Retry(77.0, "127.0.0.1 answered 429")


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.status, receiver.headers = 307, {"Location": receiver.url}
    said = WebhookNotifier(receiver.url, "c").send(NOTICE)
    assert isinstance(said, Retry)
    assert "redirects are not followed" in said.why
    assert receiver.posted == []


def test_a_receiver_that_is_not_there_for_five_minutes_gets_the_page_although_others_have_it(
    receiver: Receiver,
) -> None:
    log = LogNotifier(lambda _: None)
    outbox, delivered = Outbox([log, WebhookNotifier(receiver.url, "c")]), list[str]()
    outbox.put((NOTICE,))
    for now in range(0, 900, 5):
        receiver.status = 404 if now < 300 else 200
        delivered += outbox.pump(float(now))
    assert delivered == [NOTICE.key]
    assert len(receiver.posted) == 1


def test_a_receiver_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "WHOLE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_drip, args=(server,), daemon=True).start()
        begun = time.monotonic()
        said = WebhookNotifier(f"http://127.0.0.1:{server.getsockname()[1]}/", "c").send(NOTICE)
    assert isinstance(said, Retry)
    assert time.monotonic() - begun < 4.0


def _drip(server: socket.socket) -> None:
    link, _ = server.accept()
    try:
        with link:
            for letter in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 1_000:
                link.sendall(bytes([letter]))
                time.sleep(0.05)
    except OSError:
        return


def test_nobody_there_is_tried_again_and_the_address_stays_secret() -> None:
    said = WebhookNotifier("http://bot:hunter2@127.0.0.1:9/T0/SECRETPATH?key=hunter2", "c").send(NOTICE)
    assert isinstance(said, Retry)
    assert "hunter2" not in said.why
    assert "SECRETPATH" not in said.why


@pytest.mark.parametrize("url", ["ftp://x/", "https://", "nonsense", "https://x.example.com:99999/", "http://a b/"])
def test_an_address_that_is_none_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(UserError, match="is no web address"):
        WebhookNotifier(url, "c")


def test_a_quoted_secret_does_not_leave_the_house(receiver: Receiver) -> None:
    WebhookNotifier(receiver.url, "c").send(
        Notice("k", "info", "t", "the job printed password=hunter2hunter2 and died")
    )
    assert b"hunter2" not in receiver.posted[0].body


def test_a_long_notice_is_cut(receiver: Receiver) -> None:
    WebhookNotifier(receiver.url, "c").send(Notice("k", "info", "t", "x" * 1_000_000))
    assert len(receiver.posted[0].body) < 100_000
