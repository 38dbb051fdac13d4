"""/metrics and /healthz, asked over the wire."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sickbay.agent.follower import Follower
from sickbay.agent.measures import Measure, Measures
from sickbay.agent.metrics import Instruments, Server
from sickbay.agent.pulse import Pulse
from sickbay.errors import UserError
from tests.agent.builders import Moments
from tests.agent.test_collector import Ward

MEASURES = Measures(1.0, (Measure("mem_total", 4.0, "bytes"), Measure("gpu", 97.0, "percent", "index=0")))


class Desk:
    """A served agent whose clock a test moves."""

    def __init__(self, folder: Path) -> None:
        self.ward, self.clock = Ward(folder), Moments()
        self.pulse = Pulse(self.clock)
        follower = Follower(lambda cursor: (_ for _ in ()).throw(OSError()), self.ward.station, self.pulse)
        self.parts = Instruments(self.ward.station, follower, self.ward.collector, [], lambda: MEASURES)
        self.server = Server("127.0.0.1:0", self.parts, self.pulse)

    def get(self, path: str) -> tuple[int, str]:
        asked = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        asked.request("GET", path)
        answer = asked.getresponse()
        said = answer.read().decode()
        asked.close()
        return answer.status, said


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.server.close()


def test_a_scrape_shows_the_verdict_the_checks_and_the_host(desk: Desk) -> None:
    desk.ward.cycles(1)
    status, said = desk.get("/metrics")
    assert status == 200
    found = {family.name: family for family in text_string_to_metric_families(said)}
    assert {s.labels["status"] for s in found["sickbay_node_status"].samples if s.value == 1.0} == {"pass"}
    assert found["sickbay_cycles"].samples[0].value == 1.0
    assert found["sickbay_host_gpu"].samples[0].labels == {"index": "0"}


def test_healthz_names_the_part_that_is_stuck(desk: Desk) -> None:
    desk.pulse.beat("collector", 60.0)
    desk.pulse.beat("follower", 120.0)
    assert desk.get("/healthz") == (200, "ok\n")
    desk.clock.pass_(100.0)
    assert desk.get("/healthz") == (503, "collector has made no progress for 100 s\n")


def test_a_part_that_ended_on_purpose_is_not_stuck(desk: Desk) -> None:
    desk.pulse.beat("collector", 60.0)
    desk.pulse.rest("collector")
    desk.clock.pass_(1_000.0)
    assert desk.get("/healthz")[0] == 200


def test_other_pages_are_named(desk: Desk) -> None:
    assert desk.get("/etc/passwd")[0] == 404


def test_silent_visitors_do_not_keep_the_door_shut(desk: Desk) -> None:
    """Eight at most are inside, and each is shown out after its time."""
    silent = [socket.create_connection(("127.0.0.1", desk.server.port)) for _ in range(20)]
    for one in silent:
        one.close()
    for _ in range(200):
        try:
            assert desk.get("/healthz")[0] == 200
            return
        except (OSError, http.client.HTTPException):
            continue
    raise AssertionError("the door stayed shut")


def test_an_address_that_cannot_be_had_is_a_sentence(desk: Desk) -> None:
    with pytest.raises(UserError, match=r"agent\.listen"):
        Server(f"127.0.0.1:{desk.server.port}", desk.parts, Pulse())
