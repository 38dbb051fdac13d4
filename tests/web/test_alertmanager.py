"""What Alertmanager and webhooks say of nodes: who may say it, what becomes of it, and what it can never cause."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.catalog import load
from sickbay.core import plan, triage
from sickbay.errors import ConfigError
from sickbay.model import Finding, Gpu, NodeRecord, Severity, Status, Verb
from sickbay.platforms.reported import MOST_OUTSIDE, ReportedFleet
from sickbay.settings import CEILINGS, IngestSettings
from sickbay.web.alertmanager import code_of, nodes_of, pci_of, read_alerts
from sickbay.web.ingest import Desk, Ingest
from sickbay.web.letters import Refused
from sickbay.web.outside import MOST_BYTES, outside_routes
from sickbay.web.serve import Served
from sickbay.web.tokens import Secrets, make
from testbed.processes import free_port
from tests.builders import a_node, a_policy
from tests.controller.door import Door, HandClock
from tests.deploy.prometheus import tool
from tests.web.letters import CLUSTER, SECRET
from tests.web.posting import LOOPBACK, Answered, ask

NODE = "gpu-17"


class Ward:
    """Two nodes behind ReportedFleet, and the ingest with its doors for outsiders on loopback."""

    def __init__(self, folder: Path) -> None:
        path = folder / "secrets"
        path.write_bytes(SECRET + b"\n")
        path.chmod(0o600)
        self.clock, self.leads = HandClock(), True
        gpu = Gpu("GPU-aaaa", "serial-3", "0000:3b:00", 3)
        self.door = Door(a_node(NODE, gpus=(gpu,)), a_node("gpu-18"))
        self.fleet = ReportedFleet(self.door, self.clock)
        self.fleet.observe()
        desk = Desk(self.fleet.report, lambda: self.leads, Secrets(str(path)), CLUSTER, self.clock)
        routes = outside_routes(desk, self.fleet)
        self.served = Served(Ingest(desk, more=routes).app(), IngestSettings(listen=LOOPBACK))

    def post(self, body: Any, source: str = "alertmanager", path: str = "/v1/alerts", **headers: str) -> Answered:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        token = make(SECRET, CLUSTER, f"source:{source}")
        return ask(self.served.port, "POST", path, raw, {"Authorization": f"Bearer {token}", **headers})

    def findings(self, node: str = NODE) -> list[Finding]:
        found = self.fleet.look(node)
        assert found is not None
        return list(found.findings)


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Ward]:
    ward = Ward(tmp_path)
    yield ward
    ward.served.close()


def alert(
    name: str = "GpuHot", status: str = "firing", starts: str = "2026-11-16T03:00:00Z", **labels: str
) -> dict[str, Any]:
    labels = {"alertname": name, "node": NODE, "severity": "critical", **labels}
    mark = "".join(f"{k}{v}" for k, v in sorted(labels.items()))
    return {
        "status": status, "labels": labels, "annotations": {"summary": "it is hot"}, "startsAt": starts,
        "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://prometheus/graph", "fingerprint": mark,
    }  # fmt: skip


def message(*alerts: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": "4", "groupKey": "{}:{}", "truncatedAlerts": 0, "status": "firing", "receiver": "sickbay",
        "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://am",
        "alerts": list(alerts),
    }  # fmt: skip


# --- what is heard ----------------------------------------------------------------------------------------------------


def test_a_firing_alert_is_a_finding_about_its_node(ward: Ward) -> None:
    assert ward.post(message(alert())) == Answered(200, "1 taken", None)
    (finding,) = ward.findings()
    assert (finding.source, finding.check, finding.code) == ("alertmanager", "alert", "alert.GpuHot")
    assert finding.status is Status.FAILED
    assert finding.reason == "Alert GpuHot fires: it is hot"
    assert finding.evidence == ("GpuHot{node=gpu-17, severity=critical}",)
    assert ward.findings("gpu-18") == []


def test_the_same_alert_again_is_nothing_new_and_a_second_outbreak_is(ward: Ward) -> None:
    """Alertmanager repeats what fires, and whenever its group changes."""
    ward.post(message(alert()))
    first = ward.findings()
    ward.clock.passes(300.0)
    ward.post(message(alert(), alert("Other", node="gpu-18")))
    assert ward.findings() == first
    ward.post(message(alert(starts="2026-11-16T05:00:00Z")))
    assert int(ward.findings()[0].id.rpartition("/")[2]) > int(first[0].id.rpartition("/")[2])


def test_one_alert_that_is_over_does_not_clear_another_that_fires(ward: Ward) -> None:
    ward.post(message(alert("A"), alert("B")))
    ward.post(message(alert("A", "resolved")))
    assert [(f.code, f.status) for f in ward.findings()] == [("alert.B", Status.FAILED)]
    ward.post(message(alert("B", "resolved")))
    assert [(f.code, f.check, f.status) for f in ward.findings()] == [("", "alert", Status.OK)]


def test_an_alert_finds_its_gpu_by_uuid_index_or_address(ward: Ward) -> None:
    ward.post(message(alert("A", UUID="GPU-aaaa"), alert("B", gpu="3"), alert("C", pci_bus_id="00000000:5E:00.0")))
    places = {f.code: (f.place.device, f.part) for f in ward.findings()}
    assert places == {
        "alert.A": ("0000:3b:00", "serial-3"), "alert.B": ("0000:3b:00", "serial-3"), "alert.C": ("0000:5e:00", ""),
    }  # fmt: skip


def test_an_alert_about_no_node_of_ours_is_left_to_others(ward: Ward) -> None:
    assert ward.post(message(alert(node="web-1"), alert())).words == "1 taken, 1 about no node of ours"
    assert len(ward.findings()) == 1


def test_of_a_boot_that_is_over_an_alert_counts_no_more_until_it_is_said_again(ward: Ward) -> None:
    ward.post(message(alert()))
    ward.door.shows(NODE, boot_id="boot-2")
    ward.fleet.observe()
    assert ward.findings() == []
    ward.post(message(alert()))
    assert [f.boot_id for f in ward.findings()] == ["boot-2"]


@pytest.mark.parametrize(
    ("labels", "name"),
    [({"kubernetes_node": NODE, "instance": "10.0.0.1:9400"}, NODE), ({"instance": f"{NODE}:9400"}, NODE),
     ({"Hostname": NODE}, NODE), ({"node": f"{NODE}.example.com"}, NODE)],
)  # fmt: skip
def test_a_node_is_named_in_many_ways(labels: dict[str, str], name: str) -> None:
    assert name in nodes_of(labels)


def test_an_xid_is_believed_only_from_a_label_that_is_a_number() -> None:
    assert code_of("X", {"xid": "79"}) == ("xid.79", {"sticky": "yes"})
    for odd in ("", "-1", "79 ", "0", "٣", "99999999", "Xid 79"):
        assert code_of("Gpu Hot!", {"xid": odd})[0] == "alert.Gpu-Hot-"


@pytest.mark.parametrize(
    ("text", "pci"), [("00000000:3B:00.0", "0000:3b:00"), ("0000:3b:00.0", "0000:3b:00"), ("x", "")]
)
def test_an_exporters_bus_address_is_ours(text: str, pci: str) -> None:
    assert pci_of(text) == pci


# --- who may say it ---------------------------------------------------------------------------------------------------


def test_each_door_takes_only_the_token_of_its_own_source(ward: Ward) -> None:
    assert ward.post(message(alert()), source="webhook").status == 403
    node_token = make(SECRET, CLUSTER, NODE)
    answer = ask(ward.served.port, "POST", "/v1/alerts", b"{}", {"Authorization": f"Bearer {node_token}"})
    assert answer.status == 403
    assert "here speaks 'source:alertmanager'" in answer.words
    assert ask(ward.served.port, "POST", "/v1/alerts", b"{}").status == 401
    assert ward.findings() == []


def test_a_sources_token_cannot_speak_as_an_agent(ward: Ward) -> None:
    answer = ward.post({"node": "source:alertmanager"}, path="/v1/report")
    assert answer.status == 403
    assert "a node's report needs the node's own" in answer.words


def test_a_standby_sends_alertmanager_to_the_leader(ward: Ward) -> None:
    ward.leads = False
    assert ward.post(message(alert())).status == 503


# --- what cannot hurt -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"alerts": 7}', b'{"alerts": [{"status": 1}]}', b"\xff\xfe", b'{"version":"3"}']
)
def test_what_is_no_message_is_refused_in_words(ward: Ward, body: bytes) -> None:
    answer = ward.post(body)
    assert answer.status == 400
    assert "Alertmanager" in answer.words


def test_a_message_past_the_bounds_is_refused(ward: Ward) -> None:
    assert ward.post(b" ", **{"Content-Length": str(MOST_BYTES + 1)}).status == 413
    assert "max_alerts" in ward.post(message(*[alert() for _ in range(2_001)])).words


def test_a_storm_of_alerts_about_one_node_is_bounded(ward: Ward) -> None:
    ward.post(message(*[alert(f"A{i}") for i in range(1_000)]))
    assert len(ward.findings()) == MOST_OUTSIDE


LABELS = st.dictionaries(st.sampled_from(("node", "alertname", "xid", "gpu", "\x00")), st.text(max_size=20) | st.none())


@given(st.binary(max_size=100) | LABELS.map(lambda labels: one_with(labels)))
def test_no_bytes_do_more_than_be_refused(body: bytes) -> None:
    with suppress(Refused):
        for said in read_alerts(body):
            assert len(said.reason) <= 300
            assert said.reason.isprintable()


def one_with(labels: Any) -> bytes:
    return json.dumps({"version": "4", "alerts": [{"status": "firing", "labels": labels}]}).encode()


# --- what it may cause ------------------------------------------------------------------------------------------------


def judged(ward: Ward, **overrides: str) -> triage.Triaged:
    node = ward.fleet.look(NODE)
    assert node is not None
    catalog = load().with_overrides(overrides)
    return triage.take(NodeRecord(NODE), node, node.findings, catalog, 0.0)


def test_an_alert_that_nobody_named_opens_no_case_and_is_a_remark(ward: Ward) -> None:
    ward.post(message(alert()))
    triaged = judged(ward)
    assert triaged.record.latched == ()
    assert [f.code for f in triaged.remarks] == ["alert.GpuHot"]


def test_an_alert_that_the_operator_named_cordons_and_verifies_and_no_more(ward: Ward) -> None:
    ward.post(message(alert()))
    triaged = judged(ward, **{"alert.GpuHot": "REBOOT"})
    (latch,) = triaged.record.latched
    assert (latch.fault, latch.severity, latch.source) == ("reported-alert", Severity.REBOOT, "alertmanager")
    node = ward.fleet.look(NODE)
    assert node is not None
    catalog = load().with_overrides({"alert.GpuHot": "REBOOT"})
    case, _ = triage.open_case(triaged.record, node, [latch], catalog, a_policy(), now=0.0, at=0.0, cluster="c")
    assert case.plan.rungs == ()
    assert plan.allowed(case, a_policy(), frozenset(Verb), CEILINGS) <= {Verb.CORDON, Verb.VERIFY}


def test_it_clears_when_alertmanager_says_that_it_is_over(ward: Ward) -> None:
    named = {"alert.GpuHot": "REBOOT"}
    ward.post(message(alert()))
    record = judged(ward, **named).record
    ward.clock.passes(60.0)
    ward.post(message(alert(status="resolved")))
    node = ward.fleet.look(NODE)
    assert node is not None
    after = triage.take(record, node, node.findings, load().with_overrides(named), 60.0)
    assert [latch.fault for latch in after.cleared] == ["reported-alert"]


def test_a_severity_for_a_code_that_nobody_knows_is_still_a_mistake() -> None:
    with pytest.raises(ConfigError):
        load().with_overrides({"nosuch.code": "RESET"})


# --- anybody's webhook ------------------------------------------------------------------------------------------------


def test_a_tool_of_ones_own_tells_a_finding_and_takes_it_back(ward: Ward) -> None:
    word = {"node": NODE, "name": "fan 3", "reason": "it stands still", "device": "0000:3b:00"}
    assert ward.post({"findings": [word]}, "webhook", "/v1/findings").words == "1 taken"
    (finding,) = ward.findings()
    assert (finding.source, finding.code, finding.place.device) == ("webhook", "webhook.fan-3", "0000:3b:00")
    ward.post({"findings": [{**word, "status": "OK"}]}, "webhook", "/v1/findings")
    assert [f.status for f in ward.findings()] == [Status.OK]


def test_two_outsiders_and_the_agent_do_not_silence_each_other(ward: Ward) -> None:
    ward.post(message(alert()))
    ward.post({"findings": [{"node": NODE, "name": "fan"}]}, "webhook", "/v1/findings")
    assert {f.source for f in ward.findings()} == {"alertmanager", "webhook"}
    ward.post(message(alert(status="resolved")))
    assert {(f.source, f.status) for f in ward.findings()} == {("alertmanager", Status.OK), ("webhook", Status.FAILED)}


@pytest.mark.parametrize(
    "body",
    [{"findings": 1}, {"findings": [{"node": NODE}]}, {"findings": [{"node": NODE, "name": "x", "status": "?"}]}],
)
def test_what_is_no_finding_is_answered_with_what_would_be_one(ward: Ward, body: Any) -> None:
    assert ward.post(body, "webhook", "/v1/findings").status == 400


# --- the real one -----------------------------------------------------------------------------------------------------


def test_a_real_alertmanager_delivers_firing_and_resolved(ward: Ward, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(make(SECRET, CLUSTER, "source:alertmanager"))
    config = tmp_path / "alertmanager.yml"
    config.write_text(
        f"""
route: {{receiver: sickbay, group_by: [node], group_wait: 100ms, group_interval: 200ms, repeat_interval: 1h}}
receivers:
  - name: sickbay
    webhook_configs:
      - url: http://127.0.0.1:{ward.served.port}/v1/alerts
        send_resolved: true
        http_config: {{authorization: {{credentials_file: {tmp_path / "token"}}}}}
"""
    )
    port = free_port()
    argv = [
        tool("prometheus-alertmanager"), f"--config.file={config}", f"--storage.path={tmp_path / 'data'}",
        "--cluster.listen-address=", f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as program:
        try:
            fire(port, {})
            eventually(lambda: [f.code for f in ward.findings()] == ["alert.GpuHot"])
            fire(port, {"endsAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 1))})
            eventually(lambda: [f.status for f in ward.findings()] == [Status.OK])
        finally:
            program.terminate()


def fire(port: int, more: dict[str, str]) -> None:
    start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 60))
    body = [
        {"labels": {"alertname": "GpuHot", "node": NODE}, "annotations": {"summary": "hot"}, "startsAt": start, **more}
    ]
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v2/alerts", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )

    def sent() -> bool:
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    eventually(sent)


def eventually(holds: Any, within_s: float = 30.0) -> None:
    until = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.05)
