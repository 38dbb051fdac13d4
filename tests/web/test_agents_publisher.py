"""The agent's own HTTP publisher at the real ingest: what one sends the other takes, and a standby costs nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

from sickbay.agent.publishers import Told
from sickbay.agent.publishers.http import HttpPublisher
from sickbay.agent.publishers.spool import Spool
from sickbay.agent.verdicts import NodeVerdict
from sickbay.model import Severity
from sickbay.web.tokens import make
from tests.web.letters import CLUSTER, NODE, SECRET, a_report, xid_79
from tests.web.posting import opened

LOST = NodeVerdict("fail", Severity.REBOOT, "a GPU is lost")


def test_what_the_agent_sends_is_taken_and_a_standby_leaves_it_in_the_spool(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(make(SECRET, CLUSTER, NODE) + "\n")
    with opened(tmp_path) as counter:
        publisher = HttpPublisher(
            f"http://127.0.0.1:{counter.port}", Spool(tmp_path / "spool", 1 << 20), token_file=str(tmp_path / "token"),
            clock=counter.clock.monotonic,
        )  # fmt: skip
        counter.leads = False
        publisher.publish(Told(a_report(xid_79()), LOST))
        wait = publisher.work()
        assert wait is not None
        assert publisher.figures()["spooled"] == 1
        counter.leads = True
        counter.clock.passes(60)
        assert publisher.work() is None
        publisher.close()
    assert [f.code for report in counter.taken for f in report.findings] == ["xid.79"]
    assert publisher.figures()["spooled"] == 0


def test_over_tls_an_agent_reports_only_to_an_ingest_whose_certificate_it_trusts(tmp_path: Path) -> None:
    cert, key = a_certificate(tmp_path)
    (tmp_path / "token").write_text(make(SECRET, CLUSTER, NODE) + "\n")
    with opened(tmp_path, cert=cert, key=key) as counter:
        stranger = sends(counter.port, tmp_path / "one", tmp_path / "token", ca_file="")
        assert (stranger.figures()["spooled"], counter.taken) == (1, [])
        friend = sends(counter.port, tmp_path / "two", tmp_path / "token", ca_file=cert)
        assert (friend.figures()["spooled"], len(counter.taken)) == (0, 1)


def a_certificate(folder: Path) -> tuple[str, str]:
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    names = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, *names)
    subprocess.run(made, check=True, capture_output=True)
    return cert, key


def sends(port: int, spool: Path, token: Path, *, ca_file: str) -> HttpPublisher:
    url = f"https://127.0.0.1:{port}"
    publisher = HttpPublisher(url, Spool(spool, 1 << 20), token_file=str(token), ca_file=ca_file)
    publisher.publish(Told(a_report(xid_79()), LOST))
    publisher.work()
    publisher.close()
    return publisher
