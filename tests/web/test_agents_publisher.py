"""The agent's own HTTP publisher at the real ingest: what one sends the other takes, and a standby costs nothing."""

from __future__ import annotations

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
