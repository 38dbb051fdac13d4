"""The controller's /metrics on a real cluster: nodes, the age of the watch, and what it asks of the API server."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.shelf import install_crds


@pytest.fixture
def log(cluster: Cluster, namespace: str, nodes: Callable[..., list[str]], tmp_path: Path) -> Iterator[Path]:
    """The log of a controller that only watches, and only two nodes that nobody else uses."""
    install_crds(cluster)
    nodes(2, labels={"test/metrics": namespace})
    config, log = tmp_path / "sickbay.toml", tmp_path / "log"
    config.write_text(
        f'cluster = "{namespace}"\nplatform = "kubernetes"\nstore = "kubernetes"\ndata_dir = "{tmp_path}"\n'
        f'[jobs]\nenabled = false\n[controller]\nlisten = "127.0.0.1:0"\n[kubernetes]\nmachines = "none"\n'
        f'kubeconfig = "{cluster.kubeconfig}"\nnamespace = "{namespace}"\ngpu_selector = "test/metrics={namespace}"\n'
    )
    with log.open("wb") as out:
        argv = [sys.executable, "-m", "sickbay", "controller", "run", "--config", str(config)]
        process = subprocess.Popen(argv, stdout=out, stderr=out)
    yield log
    process.terminate()
    assert process.wait(30) == 0


def ask(log: Path, path: str) -> tuple[int, str]:
    found = re.search(r"metrics listen=\S+ port=(\d+)", log.read_text())
    assert found
    asked = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=20)
    asked.request("GET", path)
    answer = asked.getresponse()
    said = answer.read().decode()
    asked.close()
    return answer.status, said


def test_a_scrape_shows_the_nodes_the_watch_and_the_traffic(log: Path) -> None:
    until(lambda: "leading epoch=1" in log.read_text(), "it leads")
    until(lambda: ask(log, "/readyz") == (200, "leading\n"), "it is ready")
    assert ask(log, "/healthz") == (200, "leading\n")
    scrape = ask(log, "/metrics")[1]
    found = {s.name: s.value for f in text_string_to_metric_families(scrape) for s in f.samples}
    assert 0.0 <= found["sickbay_watch_age_seconds"] < 120.0
    rows = [s for f in text_string_to_metric_families(scrape) for s in f.samples]
    assert sum(s.value for s in rows if s.name == "sickbay_nodes") == 2.0
    verbs = {s.labels["verb"] for s in rows if s.name == "sickbay_api_requests_total"}
    assert {"GET", "WATCH", "POST"} <= verbs  # it has listed, it watches, it has written its first record
