"""/metrics and the probes of a real controller process on a simulated fleet; the real Prometheus that scrapes it."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sickbay.controller.accounts import Accounts
from sickbay.controller.metrics import Figures, open_pages
from sickbay.controller.vitals import STALE_S, START_S, Vitals
from sickbay.errors import UserError
from sickbay.kube import traffic
from sickbay.settings import Settings
from tests.controller_process.conftest import PATIENCE_S, Running, Start
from tests.deploy.prometheus import RULES, promtool, tool
from tests.deploy.test_dashboards import BOARDS, queries
from tests.deploy.test_rules import METRIC, rules

QUIET = ("--sim-nodes", "8", "--sim-faults", "0")
SICK = ("--sim-nodes", "32", "--sim-faults", "200", "--sim-speed", "400")
PAGE = (RULES.parents[1] / "docs" / "metrics.md").read_text()
ONLY_ON_KUBERNETES = {"sickbay_watch_age_seconds"}


def ask(port: int, path: str) -> tuple[int, str]:
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    asked.request("GET", path)
    answer = asked.getresponse()
    said = answer.read().decode()
    asked.close()
    return answer.status, said


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, f"never: {what}"
        threading.Event().wait(0.1)


def listening(folder: Path) -> None:
    config = folder / "sickbay.toml"
    config.write_text(config.read_text() + '[controller]\nlisten = "127.0.0.1:0"\n')


def port_of(process: Running) -> int:
    found = re.search(r"metrics listen=\S+ port=(\d+)", process.says("metrics listen="))
    assert found
    return int(found[1])


# --- a real process ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, int]]:
    """One for all tests that only look: a fleet on which cases have been opened and resolved."""
    folder = tmp_path_factory.mktemp("sick")
    lines = (f'data_dir = "{folder}"', "[policy]", 'max_verb = "REPLACE"', "approval = []", "[sqlite]",
             'synchronous = "OFF"', "")  # fmt: skip
    (folder / "sickbay.toml").write_text("\n".join(lines))
    listening(folder)
    process = Running(folder, *SICK)
    try:
        port = port_of(process)
        process.says("phase=RESOLVED")
        yield process, port
    finally:
        process.kill()
        process.close()


def defined() -> set[str]:
    """Metrics of the controller in docs/metrics.md."""
    part = PAGE.partition("## The controller's /metrics")[2].partition("## Recording rules")[0]
    return set(re.findall(r"`(sickbay_[a-z0-9_]+)`", part))


def names_in(scrape: str) -> set[str]:
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(scrape)
    }


def test_a_scrape_has_what_the_docs_define_no_less_and_no_more(sick: tuple[Running, int]) -> None:
    _, port = sick
    status, scrape = ask(port, "/metrics")
    assert status == 200
    assert names_in(scrape) == defined() - ONLY_ON_KUBERNETES
    promtool_check(scrape)


def promtool_check(scrape: str) -> None:
    ended = subprocess.run([tool("promtool"), "check", "metrics"], input=scrape, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def samples(scrape: str, name: str) -> dict[tuple[str, ...], float]:
    found = (s for family in text_string_to_metric_families(scrape) for s in family.samples if s.name == name)
    return {tuple(s.labels.values()): s.value for s in found}


def test_what_happened_to_a_sick_fleet_is_counted(sick: tuple[Running, int]) -> None:
    process, port = sick
    until(lambda: sum(samples(ask(port, "/metrics")[1], "sickbay_nodes").values()) == 32, "every node in one state")
    scrape = ask(port, "/metrics")[1]
    assert sum(samples(scrape, "sickbay_case_ends_total").values()) >= 1
    assert sum(samples(scrape, "sickbay_actions_total").values()) >= 4
    assert samples(scrape, "sickbay_leading") == {(): 1.0}
    assert samples(scrape, "sickbay_pass_seconds_count")[()] >= 1
    assert sum(samples(scrape, "sickbay_store_writes_total").values()) >= process.count("event=OPENED")


def test_no_node_is_a_label(sick: tuple[Running, int]) -> None:
    process, port = sick
    scrape = ask(port, "/metrics")[1]
    labels = [label for f in text_string_to_metric_families(scrape) for s in f.samples for label in s.labels.items()]
    assert not {name for name, _ in labels} & {"instance", "job"}, "they would hide Prometheus' own"
    sick_nodes = set(re.findall(r"case=(\S+)\.\d+ phase=CORDONING", "\n".join(process.lines)))
    assert sick_nodes
    assert not {value for _, value in labels} & sick_nodes


def test_one_that_stands_by_is_ready_and_does_not_pretend_to_know_the_fleet(start: Start, folder: Path) -> None:
    listening(folder)
    start(*QUIET).says("leading epoch=1")
    second = start(*QUIET)
    second.says("standing by")
    port = port_of(second)
    until(lambda: ask(port, "/readyz") == (200, "standing by\n"), "ready while standing by")
    assert ask(port, "/healthz") == (200, "standing by\n")
    scrape = ask(port, "/metrics")[1]
    assert samples(scrape, "sickbay_leading") == {(): 0.0}
    assert not {"sickbay_nodes", "sickbay_cases", "sickbay_breaker_open"} & names_in(scrape)


def test_an_address_that_is_taken_is_a_sentence_and_code_2(start: Start, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config, address = folder / "sickbay.toml", f"127.0.0.1:{taken.getsockname()[1]}"
        config.write_text(config.read_text() + f'[controller]\nlisten = "{address}"\n')
        process = start(*QUIET)
        process.says(f"controller.listen '{address}' cannot be listened on")
        assert process.process.wait(PATIENCE_S) == 2
    assert not process.said("Traceback")


def test_without_an_address_nothing_is_opened(start: Start) -> None:
    process = start(*QUIET)
    process.says("leading")
    assert not process.said("metrics listen=")


# --- the real Prometheus ----------------------------------------------------------------------------------------------


@pytest.fixture
def prometheus(sick: tuple[Running, int], tmp_path: Path) -> Iterator[int]:
    """Scrapes the controller every second, with our rules loaded; on loopback, ended afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in sorted(RULES.glob("*.yaml"))],
        "scrape_configs": [{"job_name": "sickbay", "static_configs": [{"targets": [f"127.0.0.1:{sick[1]}"]}]}],
    }
    file = tmp_path / "prometheus.yml"
    file.write_text(json.dumps(config))  # JSON is YAML
    argv = [
        tool("prometheus"), f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield port
    process.kill()
    process.wait(20)


def query(port: int, expr: str) -> list[object]:
    try:
        status, said = ask(port, f"/api/v1/query?query={quote(expr)}")
    except OSError:
        return []
    assert status in (200, 503), (expr, said)
    found: list[object] = json.loads(said)["data"]["result"] if status == 200 else []
    return found


def test_prometheus_scrapes_it_and_every_rule_and_panel_has_a_metric_that_is_there(
    sick: tuple[Running, int], prometheus: int
) -> None:
    until(lambda: bool(query(prometheus, 'up{job="sickbay"} == 1')), "scraped")
    until(lambda: bool(query(prometheus, "sickbay:limit_used:ratio")), "a recorded rule")
    assert query(prometheus, "sickbay_job_gpus")
    exprs = [rule["expr"] for rule in rules()] + [q for board in BOARDS.values() for q in queries(board)]
    used = {name for expr in exprs for name in METRIC.findall(expr)}
    scrape = ask(sick[1], "/metrics")[1]
    there = names_in(scrape) | {f"{n}_{part}" for n in names_in(scrape) for part in ("bucket", "count", "sum")}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    of_agents = set(re.findall(r"`(sickbay_[a-z_]+)`", PAGE.partition("## The controller's /metrics")[0]))
    assert used <= there | recorded | of_agents | ONLY_ON_KUBERNETES
    said = promtool("query", "instant", f"http://127.0.0.1:{prometheus}", "sum(sickbay_nodes)")
    assert "=> 32 @" in said


# --- probes -----------------------------------------------------------------------------------------------------------


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def hands() -> Hands:
    return Hands()


def test_healthz_says_for_how_long_no_pass_was_completed(hands: Hands) -> None:
    vitals = Vitals(10.0, monotonic=hands)
    vitals.passed(sleeps_s=60.0)
    hands.now = 109.0
    assert vitals.health() == (200, b"leading\n")
    hands.now = 111.0
    assert vitals.health() == (503, b"no pass was completed for 111 s\n")
    vitals.passed(10.0)
    assert vitals.health()[0] == 200


def test_a_store_that_fails_makes_it_unready_and_later_unhealthy_but_is_no_reason_to_restart(hands: Hands) -> None:
    """A liveness probe on /healthz would restart every controller in the middle of an API server's outage."""
    vitals = Vitals(10.0, monotonic=hands)
    vitals.passed(10.0)
    for _ in range(20):
        hands.now += 5.0
        vitals.failed("StoreError: disk full", 5.0)
    assert vitals.ready() == (503, b"failing: StoreError: disk full\n")
    assert vitals.health() == (503, b"no pass was completed for 100 s: StoreError: disk full\n")
    assert vitals.alive() == (200, b"failing\n")


def test_a_loop_that_hangs_is_restarted(hands: Hands) -> None:
    vitals = Vitals(10.0, monotonic=hands)
    vitals.passed(10.0)
    hands.now = 61.0
    assert vitals.alive() == (503, b"the loop has not moved for 61 s\n")


def test_taking_the_lead_on_a_large_fleet_may_take_a_while(hands: Hands) -> None:
    vitals = Vitals(10.0, monotonic=hands)
    vitals.stood_by()
    vitals.begins()
    hands.now = START_S - 1.0
    assert vitals.health()[0] == vitals.alive()[0] == 200
    hands.now = START_S + 1.0
    assert vitals.alive()[0] == vitals.health()[0] == 503


def test_a_stale_watch_is_unhealthy_only_for_one_that_leads(hands: Hands) -> None:
    vitals = Vitals(10.0, watch_age=lambda: STALE_S + 12.0, monotonic=hands)
    vitals.stood_by()
    assert vitals.health() == (200, b"standing by\n")
    vitals.passed(10.0)
    assert vitals.health() == (503, b"the API server has said nothing of nodes or pods for 312 s\n")
    assert vitals.alive()[0] == 200


def test_on_kubernetes_the_age_of_the_watch_and_the_requests_are_shown(hands: Hands) -> None:
    vitals = Vitals(10.0, watch_age=lambda: 7.0, monotonic=hands)
    vitals.passed(10.0)
    traffic.count("GET", 200)
    traffic.count("PATCH", 0)
    figures = Figures(Settings(), Accounts(lambda: 0.0), vitals, lambda: 0.0, lambda: None)
    pages = open_pages(figures, vitals, "127.0.0.1:0")
    try:
        scrape = ask(pages.port, "/metrics")[1]
    finally:
        pages.close()
    assert samples(scrape, "sickbay_watch_age_seconds") == {(): 7.0}
    counted = samples(scrape, "sickbay_api_requests_total")
    assert counted[("200", "GET")] >= 1
    assert counted[("none", "PATCH")] >= 1


def test_a_scrape_takes_no_lock_that_a_pass_may_hold(hands: Hands) -> None:
    accounts, vitals = Accounts(lambda: 0.0), Vitals(10.0, monotonic=hands)
    pages = open_pages(Figures(Settings(), accounts, vitals, lambda: 0.0, lambda: None), vitals, "127.0.0.1:0")
    locks = [accounts._lock, accounts.ends._lock, accounts.mttr._lock, accounts.passes._lock, accounts.jobs.ended._lock]
    for lock in locks:
        lock.acquire()
    try:
        assert ask(pages.port, "/metrics")[0] == 200
    finally:
        for lock in locks:
            lock.release()
        pages.close()


def test_a_bad_address_names_the_setting() -> None:
    vitals = Vitals(10.0)
    figures = Figures(Settings(), Accounts(lambda: 0.0), vitals, lambda: 0.0, lambda: None)
    with pytest.raises(UserError, match=r"controller\.listen"):
        open_pages(figures, vitals, "203.0.113.1:1")
