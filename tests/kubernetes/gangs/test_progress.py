"""How far a gang is: read from a log through the real API server, from an address, from annotations."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from sickbay.kube.objects import Anything
from sickbay.model import Done, Failed, JobPhase, Progress
from sickbay.platforms.kubernetes.gangs import progress
from sickbay.platforms.kubernetes.gangs.pulse import Pulse
from sickbay.platforms.kubernetes.gangs.stop import stop_job
from tests.kubernetes.gangs.ground import Ground
from tests.kubernetes.gangs.log_server import LogServer

BY_LOG = {"sickbay.dev/progress": r"log:step=(\d+)", "sickbay.dev/checkpoints-by": r"log:saved complete (\d+)"}


@pytest.fixture(scope="module")
def kubelet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServer]:
    server = LogServer(tmp_path_factory.mktemp("kubelet"))
    yield server
    server.close()


def test_steps_and_complete_checkpoints_are_read_from_the_log_of_rank_0_and_written_down(
    ground: Ground, kubelet: LogServer
) -> None:
    here = ground.nodes(2)
    for node in here:
        kubelet.serve(ground.api, node)
    job = ground.running(ground.job(annotations=BY_LOG))
    first = ground.pod_on(job.rank_nodes[0])
    kubelet.logs[first.metadata.name] = "warming up\nstep=100 loss=2.1\nsaved complete 100\nstep=140 loss=2.0\n"
    told: list[Progress] = []
    gangs = ground.gangs()
    assert Pulse(ground.site, gangs, told.append).round() == 1
    assert [(p.job, p.rank, p.step) for p in told] == [(job.id, 0, 140)]
    shown = gangs.show(job.id)
    assert (shown.step, shown.checkpoint and shown.checkpoint.step) == (140, 100)
    after_us = ground.show(job.id).checkpoint  # another controller, who has read no log
    assert after_us is not None
    assert after_us.step == 100
    assert Pulse(ground.site, gangs, told.append).round() == 0  # nothing new


def test_a_stop_is_refused_when_the_log_shows_that_the_job_has_moved(ground: Ground, kubelet: LogServer) -> None:
    here = ground.nodes(2)
    for node in here:
        kubelet.serve(ground.api, node)
    job = ground.running(ground.job(annotations=BY_LOG))
    kubelet.logs[ground.pod_on(job.rank_nodes[0]).metadata.name] = "step=141\n"
    outcome = stop_job(ground.site, ground.stop(job, last_step="140"))
    assert isinstance(outcome, Failed)
    assert outcome.why == f"moved: {job.id} has reached step 141, beyond 140"


def test_the_last_words_of_a_dead_rank_are_kept_when_its_gang_is_stopped(ground: Ground, kubelet: LogServer) -> None:
    here = ground.nodes(2)
    for node in here:
        kubelet.serve(ground.api, node)
    job = ground.running(ground.job())
    dead = ground.pod_on(job.rank_nodes[1])
    kubelet.logs[dead.metadata.name] = "x\n" * 500 + "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    ground.die(dead)
    assert isinstance(ground.do(ground.stop(ground.phase(job.id, JobPhase.FAILED))), Done)
    (exit_,) = ground.show(job.id).exits
    assert (exit_.rank, exit_.node, exit_.code) == (1, job.rank_nodes[1], 1)
    assert any("uncorrectable ECC" in line for line in exit_.tail)
    assert any("tailLines=60" in asked and "limitBytes=65536" in asked for asked in kubelet.asked)


def test_a_log_that_nobody_serves_is_no_progress_and_no_error(ground: Ground) -> None:
    ground.nodes(2)
    job = ground.running(ground.job(annotations=BY_LOG))
    told: list[Progress] = []
    assert Pulse(ground.site, ground.gangs(), told.append).round() == 0
    assert (told, ground.show(job.id).phase) == ([], JobPhase.RUNNING)


# --- by address -------------------------------------------------------------------------------------------------------


class Trainer:
    """What a trainer answers on a port of its pod."""

    def __init__(self) -> None:
        self.answer, self.posted = "{}", 0
        trainer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                data = trainer.answer.encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self) -> None:
                trainer.posted += 1
                self.do_GET()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self.server.server_address[1])
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def trainer() -> Iterator[Trainer]:
    made = Trainer()
    yield made
    made.server.shutdown()
    made.server.server_close()


def at_loopback(ground: Ground) -> None:
    for pod in ground.pods():
        here = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
        ground.api.patch(f"{ground.pod_path(pod)}/status", {"status": here}, Anything)


def test_a_step_is_read_from_an_address_of_the_pod_in_three_forms(ground: Ground, trainer: Trainer) -> None:
    ground.nodes(1)
    job = ground.running(ground.job(ranks=1, annotations={"sickbay.dev/progress": f"http:{trainer.port}/metrics"}))
    at_loopback(ground)
    forms = {'{"global_step": 7, "loss": 2}': 7, "# HELP x\ntrain_step 1\nglobal_step{rank=\"0\"} 12.0\n": 12, "15": 15,
             "<html>": -1, '{"step": "9"}': -1, '{"step": 1e400}': -1}  # fmt: skip
    for answer, step in forms.items():
        trainer.answer = answer
        gang = ground.gangs().gang(job.id)
        assert gang is not None
        assert progress.read(ground.site, gang).step == step, answer


def test_a_pattern_that_could_take_for_ever_is_not_used() -> None:
    """A job's owner writes it, and the controller runs it."""
    began = time.monotonic()
    for pattern in (r"(a+)+$", r"(a*)*b", r"(\d+)*x", "(" * 50, r"(a|a)*$" * 40):
        progress._numbers(("a" * 400,) * 5, pattern)
    assert time.monotonic() - began < 1.0
