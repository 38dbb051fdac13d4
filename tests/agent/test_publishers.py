"""The contract of every publisher, and what is special about each."""

from __future__ import annotations

import json
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sickbay import wire
from sickbay.agent.measures import Measure, Measures
from sickbay.agent.publishers import Item, Publisher, Told
from sickbay.agent.publishers.emf import EmfPublisher
from sickbay.agent.publishers.http import HttpPublisher
from sickbay.agent.publishers.kubernetes import KubernetesPublisher, Where
from sickbay.agent.publishers.lane import MOST_WAITING, Lane
from sickbay.agent.publishers.spool import Spool
from sickbay.agent.publishers.stdout import StdoutPublisher
from sickbay.agent.publishers.textfile import TextfilePublisher
from sickbay.agent.verdicts import NodeVerdict
from sickbay.errors import UserError
from sickbay.kube.access import Access
from sickbay.kube.api import Api
from sickbay.kube.names import keys
from sickbay.model import Report, Severity
from sickbay.settings import AgentSettings
from tests.agent.builders import BOOT, NODE, WALL, Moments, a_finding

PATIENCE_S = 20.0


def told(sequence: int = 1) -> Told:
    report = Report(NODE, BOOT, sequence, WALL, (a_finding("xid.79", sequence),))
    return Told(report, NodeVerdict("fail", Severity.REBOOT, "GPU lost"))


MEASURES = Measures(WALL, (Measure("cpu_usage_active", 12.5, "percent"), Measure("net", 1.0, "", "interface=eth0")))


class _Quiet(HTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no news."""


class Ingest:
    """A controller's ingest that answers as a test tells it to."""

    def __init__(self) -> None:
        self.taken: list[Report] = []
        self.tokens: list[str] = []
        self.connections = self.ended = 0
        self.answers: list[int] = []  # the next ones; then 200
        self.news = threading.Condition()
        self.server = _Quiet(("127.0.0.1", 0), self._page())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def _page(ingest) -> type[BaseHTTPRequestHandler]:
        class Page(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 0.5

            def setup(self) -> None:
                super().setup()
                ingest.connections += 1

            def finish(self) -> None:
                super().finish()
                with ingest.news:
                    ingest.ended += 1
                    ingest.news.notify_all()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = ingest.answers.pop(0) if ingest.answers else 200
                ingest.tokens.append(self.headers.get("Authorization", ""))
                with ingest.news:
                    if status == 200 and self.path == "/v1/report":
                        ingest.taken.append(wire.decode(Report, body))
                    ingest.news.notify_all()
                self.send_response(status)
                self.send_header("Content-Length", "3")
                self.end_headers()
                self.wfile.write(b"ok\n")

            def log_message(self, format: str, *args: Any) -> None: ...

        return Page

    def wait(self, holds: Callable[[], bool]) -> bool:
        with self.news:
            return self.news.wait_for(holds, PATIENCE_S)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)


@pytest.fixture
def ingest() -> Iterator[Ingest]:
    made = Ingest()
    yield made
    made.close()


def an_http(folder: Path, url: str, clock: Moments | None = None, **changed: Any) -> HttpPublisher:
    return HttpPublisher(url, Spool(folder / "spool", 1 << 20), clock=clock or Moments(), **changed)


# --- the contract -----------------------------------------------------------------------------------------------------


def a_kubernetes(folder: Path) -> KubernetesPublisher:
    """Nobody is there. What it does on a real API server: tests/kubernetes/test_publisher*.py."""
    api = Api(Access("127.0.0.1", 9, ssl.create_default_context, lambda: ""))
    return KubernetesPublisher(Where(api, NODE, keys(), folder), AgentSettings)


@pytest.fixture(params=["stdout", "http", "textfile", "emf", "kubernetes"])
def publisher(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Publisher]:
    handle = os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY)
    made: dict[str, Callable[[], Publisher]] = {
        "stdout": lambda: StdoutPublisher(handle),
        "http": lambda: an_http(tmp_path, "http://127.0.0.1:9"),  # nobody is there
        "textfile": lambda: TextfilePublisher(str(tmp_path)),
        "emf": lambda: EmfPublisher(NODE, handle),
        "kubernetes": lambda: a_kubernetes(tmp_path),
    }
    yield made[request.param]()
    os.close(handle)


def mine(publisher: Publisher) -> Item:
    return told() if publisher.takes is Told else MEASURES


def test_it_takes_what_it_says_it_takes_and_counts(publisher: Publisher) -> None:
    publisher.publish(mine(publisher))
    publisher.work()
    figures = publisher.figures()
    assert figures.get("sent", 0.0) + figures.get("spooled", 0.0) == 1.0
    publisher.close()
    publisher.close()


def test_its_lane_passes_over_what_is_not_for_it(publisher: Publisher) -> None:
    lane = Lane(publisher)
    lane.offer(MEASURES if publisher.takes is Told else told())
    assert lane.figures()["waiting"] == 0.0


def test_its_lane_ends_when_told_to_with_everything_delivered_or_kept(publisher: Publisher) -> None:
    lane = Lane(publisher)
    lane.start()
    for _ in range(3):
        lane.offer(mine(publisher))
    lane.stop(PATIENCE_S)
    assert not lane.is_alive()
    assert lane.figures()["waiting"] == 0.0


# --- lanes ------------------------------------------------------------------------------------------------------------


class Hanging:
    name = "hanging"
    takes: type[Told] | type[Measures] = Told

    def __init__(self) -> None:
        self.release = threading.Event()

    def publish(self, item: Item) -> None:
        self.release.wait()

    def work(self) -> float | None:
        return None

    def figures(self) -> dict[str, float]:
        return {}

    def close(self) -> None: ...


def test_a_publisher_that_hangs_delays_nobody_and_its_queue_is_bounded() -> None:
    hanging = Hanging()
    lane = Lane(hanging)
    lane.start()
    for n in range(MOST_WAITING * 3):
        lane.offer(told(n))
    assert lane.figures()["waiting"] <= MOST_WAITING
    assert lane.dropped >= MOST_WAITING
    hanging.release.set()
    lane.stop(PATIENCE_S)


# --- http -------------------------------------------------------------------------------------------------------------


def test_reports_arrive_in_order_over_one_connection_with_the_token(tmp_path: Path, ingest: Ingest) -> None:
    (tmp_path / "token").write_text("v1.abc.def\n")
    publisher = an_http(tmp_path, ingest.url, token_file=str(tmp_path / "token"))
    for n in (1, 2, 3):
        publisher.publish(told(n))
        assert publisher.work() is None
    assert [report.sequence for report in ingest.taken] == [1, 2, 3]
    assert set(ingest.tokens) == {"Bearer v1.abc.def"}
    assert ingest.connections == 1
    publisher.close()


def test_a_new_token_is_used_without_a_restart(tmp_path: Path, ingest: Ingest) -> None:
    (tmp_path / "token").write_text("old")
    clock = Moments()
    publisher = an_http(tmp_path, ingest.url, clock, token_file=str(tmp_path / "token"))
    ingest.answers = [401]
    publisher.publish(told())
    assert publisher.work()
    (tmp_path / "token").write_text("new")
    clock.pass_(60.0)
    assert publisher.work() is None
    assert ingest.tokens == ["Bearer old", "Bearer new"]
    publisher.close()


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503, 404])
def test_what_may_still_be_taken_is_kept_and_tried_again(
    tmp_path: Path, ingest: Ingest, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Moments()
    publisher = an_http(tmp_path, ingest.url, clock)
    ingest.answers = [status]
    publisher.publish(told())
    wait = publisher.work()
    assert wait is not None
    assert publisher.figures()["spooled"] == 1.0
    assert str(status) in caplog.text
    clock.pass_(wait)
    assert publisher.work() is None
    assert len(ingest.taken) == 1
    publisher.close()


def test_a_wrong_token_is_said_with_what_to_do(
    tmp_path: Path, ingest: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "token").write_text("v1.secret")
    publisher = an_http(tmp_path, ingest.url, token_file=str(tmp_path / "token"))
    ingest.answers = [403]
    publisher.publish(told())
    publisher.work()
    assert "sickbay token NODE" in caplog.text
    assert "v1.secret" not in caplog.text
    publisher.close()


@pytest.mark.parametrize("status", [400, 413])
def test_what_never_will_be_taken_is_dropped_and_said(
    tmp_path: Path, ingest: Ingest, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = an_http(tmp_path, ingest.url)
    ingest.answers = [status]
    publisher.publish(told(1))
    publisher.publish(told(2))
    assert publisher.work() is None
    assert [report.sequence for report in ingest.taken] == [2]
    assert "dropped" in caplog.text
    publisher.close()


def test_waiting_grows_has_jitter_and_is_shortened_by_news(tmp_path: Path) -> None:
    clock = Moments()
    publisher = an_http(tmp_path, "http://127.0.0.1:9", clock)
    publisher.publish(told(1))
    waits = []
    for _ in range(10):
        waits.append(publisher.work() or 0.0)
        clock.pass_(waits[-1])
    assert waits[0] <= 0.5 < 10.0 < waits[-1] <= 30.0
    publisher.work()
    publisher.publish(told(2))
    assert (publisher.work() or 0.0) <= 1.0


def test_a_connection_that_the_other_side_closed_costs_no_report(tmp_path: Path, ingest: Ingest) -> None:
    publisher = an_http(tmp_path, ingest.url)
    publisher.publish(told(1))
    publisher.work()
    assert ingest.wait(lambda: ingest.ended == 1)  # by its own time limit for a silent connection
    publisher.publish(told(2))
    assert publisher.work() is None
    assert (len(ingest.taken), ingest.connections) == (2, 2)
    publisher.close()


def test_what_could_not_be_sent_survives_a_kill_and_goes_first(tmp_path: Path, ingest: Ingest) -> None:
    dead = an_http(tmp_path, "http://127.0.0.1:9")
    for n in (1, 2):
        dead.publish(told(n))
        dead.work()
    (tmp_path / "spool" / ".00000000000000000003.json.77.tmp").write_text("{half")  # what a kill leaves behind
    alive = an_http(tmp_path, ingest.url)
    alive.publish(told(3))
    alive.work()
    assert [report.sequence for report in ingest.taken] == [1, 2, 3]
    assert os.listdir(tmp_path / "spool") == []
    alive.close()


def test_an_address_is_asked_for_in_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"agent\.ingest_url"):
        an_http(tmp_path, "")


# --- the spool --------------------------------------------------------------------------------------------------------


def test_a_full_spool_drops_the_oldest_and_counts_them(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1_000)
    for n in range(100):
        spool.add(n, b"7" * 100)
    assert spool.dropped == 90
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1_000
    assert (spool.oldest() or ("", b""))[0].startswith(f"{90:020d}")


def test_one_report_larger_than_the_spool_is_still_kept(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10)
    spool.add(1, b"x" * 100)
    assert len(spool) == 1


def test_a_spool_that_somebody_emptied_goes_on(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1_000)
    spool.add(1, b"[1]")
    for path in tmp_path.iterdir():
        path.unlink()
    spool.add(2, b"[2]")
    assert (spool.oldest() or ("", b""))[1] == b"[2]"


# --- the others -------------------------------------------------------------------------------------------------------


def test_stdout_is_one_json_object_a_line(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY)
    StdoutPublisher(handle).publish(told(4))
    os.close(handle)
    assert wire.decode(Report, (tmp_path / "out").read_bytes()).sequence == 4


def test_the_textfile_is_what_node_exporter_reads(tmp_path: Path) -> None:
    TextfilePublisher(str(tmp_path)).publish(told())
    assert [path.name for path in tmp_path.iterdir()] == ["sickbay.prom"]
    families = {f.name: f for f in text_string_to_metric_families((tmp_path / "sickbay.prom").read_text())}
    assert {s.labels["status"]: s.value for s in families["sickbay_node_status"].samples}["fail"] == 1.0
    assert families["sickbay_finding"].samples[0].labels["code"] == "xid.79"


def test_host_metrics_become_embedded_metrics(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY)
    EmfPublisher(NODE, handle).publish(MEASURES)
    os.close(handle)
    first, second = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    about = first["_aws"]["CloudWatchMetrics"][0]
    assert about["Dimensions"] == [["host"]]
    assert about["Metrics"] == [{"Name": "cpu_usage_active", "Unit": "Percent"}]
    assert (first["host"], first["cpu_usage_active"]) == (NODE, 12.5)
    assert second["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["host", "interface"]]
