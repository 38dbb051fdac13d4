"""How far a gang is: read from a log through the real API server, from an address, from annotations."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, PodObject, PodStatus
from sickbay.model import Done, Failed, JobPhase, Progress
from sickbay.platforms.kubernetes.gangs import address as fetching
from sickbay.platforms.kubernetes.gangs import files, progress
from sickbay.platforms.kubernetes.gangs.pulse import Pulse
from sickbay.platforms.kubernetes.gangs.show import Gang
from sickbay.platforms.kubernetes.gangs.stop import stop_job
from sickbay.platforms.kubernetes.site import Site
from testbed.cluster import Cluster
from testbed.log_server import LogServer
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.gangs.ground import Ground

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
    assert outcome.why == f"moved: {job.id} is at step 141, no longer at 140"


def test_steps_that_go_back_are_told_and_a_stop_for_the_step_before_is_refused(
    ground: Ground, kubelet: LogServer
) -> None:
    """Its launcher has restarted it in place: the newest line counts, not the highest number."""
    for node in ground.nodes(2):
        kubelet.serve(ground.api, node)
    job = ground.running(ground.job(annotations=BY_LOG))
    first = ground.pod_on(job.rank_nodes[0]).metadata.name
    told: list[Progress] = []
    gangs = ground.gangs()
    pulse = Pulse(ground.site, gangs, told.append)
    for log in ("step=140\n", "step=140\nrestarting\nstep=101\n", "step=140\nrestarting\nstep=101\nstep=102\n"):
        kubelet.logs[first] = log
        assert pulse.round() == 1
    assert [p.step for p in told] == [140, 101, 102]
    assert gangs.show(job.id).step_s < 15.0  # going back is no pace
    outcome = stop_job(ground.site, ground.stop(job, last_step="140"))
    assert isinstance(outcome, Failed)
    assert outcome.why == f"moved: {job.id} is at step 102, no longer at 140"
    assert ground.show(job.id).phase is JobPhase.RUNNING


# --- a source that cannot be read -------------------------------------------------------------------------------------


def test_a_job_whose_log_cannot_be_read_is_not_stopped_for_its_silence(ground: Ground, kubelet: LogServer) -> None:
    for node in ground.nodes(2):
        kubelet.serve(ground.api, node)
    job = ground.running(ground.job(annotations=BY_LOG))
    first = ground.pod_on(job.rank_nodes[0]).metadata.name
    kubelet.logs[first] = "step=140\n"
    told: list[Progress] = []
    gangs = ground.gangs()
    pulse = Pulse(ground.site, gangs, told.append)
    assert pulse.round() == 1
    kubelet.broken.add(first)
    assert (pulse.round(), pulse.round()) == (0, 0)
    assert [(p.step, bool(p.unread)) for p in told] == [(140, False), (140, True)]  # and said once
    assert gangs.show(job.id).unread
    outcome = stop_job(ground.site, ground.stop(job, last_step="140"))
    assert isinstance(outcome, Failed)
    assert outcome.why.startswith("its progress cannot be read: ")
    assert not ground.object(job.id)["spec"]["suspend"]
    kubelet.broken.clear()
    assert pulse.round() == 0
    assert (told[-1].unread, gangs.show(job.id).unread) == ("", "")


def test_a_silence_counts_when_the_node_of_the_rank_that_speaks_is_not_ready(
    ground: Ground, kubelet: LogServer, cluster: Cluster
) -> None:
    """Its log cannot be read because it is dead, and that is the failure itself."""
    for node in ground.nodes(2):
        kubelet.serve(ground.api, node)
    job = ground.running(ground.job(annotations=BY_LOG))
    kubelet.broken.add(ground.pod_on(job.rank_nodes[0]).metadata.name)
    gang = ground.gangs().gang(job.id)
    assert gang is not None
    assert progress.read(ground.site, gang).unread
    cluster.kill_kubelet(job.rank_nodes[0])
    assert progress.read(ground.site, gang).unread == ""


def test_a_dead_rank_is_stopped_whatever_its_log_says_or_cannot_say(ground: Ground, kubelet: LogServer) -> None:
    for node in ground.nodes(2):
        kubelet.serve(ground.api, node)
    job = ground.running(ground.job(annotations=BY_LOG))
    kubelet.logs[ground.pod_on(job.rank_nodes[0]).metadata.name] = "step=142\n"  # made after we last looked
    ground.die(ground.pod_on(job.rank_nodes[1]))
    failed = ground.phase(job.id, JobPhase.FAILED)
    assert isinstance(ground.do(ground.stop(failed, last_step="140")), Done)


def test_a_pod_with_a_sidecar_is_asked_for_its_first_containers_log(ground: Ground, kubelet: LogServer) -> None:
    for node in ground.nodes(1):
        kubelet.serve(ground.api, node)
    pod = ground.pod_template()
    pod["spec"]["containers"].append({"name": "proxy", "image": "proxy:1"})
    job = ground.running(ground.job(ranks=1, pod=pod, annotations=BY_LOG))
    kubelet.logs[ground.pod_on(job.rank_nodes[0]).metadata.name] = "step=7\n"
    gang = ground.gangs().gang(job.id)
    assert gang is not None
    assert progress.read(ground.site, gang).step == 7


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
    assert ([p.step for p in told if not p.unread], ground.show(job.id).phase) == ([], JobPhase.RUNNING)


def test_one_bad_job_beside_twenty_good_ones_hides_none_of_them(
    ground: Ground, kubelet: LogServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for node in ground.nodes(1):
        kubelet.serve(ground.api, node)
    light = ground.pod_template(gpus=0)
    jobs = [ground.job(f"good-{i}", 1, pod=light, annotations=BY_LOG) for i in range(20)]
    bad = ground.job("bad", 1, pod=light, annotations=BY_LOG)
    for job in (*jobs, bad):
        ground.running(job)
    kubelet.logs.update({pod.metadata.name: "step=5\n" for pod in ground.pods()})
    read = progress.read

    def burst(site: Site, gang: Gang) -> progress.Reading:
        if gang.id == bad:
            raise RecursionError("deep")
        return read(site, gang)

    monkeypatch.setattr(progress, "read", burst)
    told: list[Progress] = []
    pulse = Pulse(ground.site, ground.gangs(), told.append)
    assert (pulse.round(), pulse.round()) == (20, 0)
    assert {p.job for p in told if not p.unread} == set(jobs)
    assert [line for line in caplog.messages if bad in line] == [
        f"{bad}: its progress cannot be read, and a hang would not be noticed: RecursionError: deep"
    ]


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
             "<html>": -1, '{"step": "9"}': -1, '{"step": 1e400}': -1, "[" * 60_000: -1}  # fmt: skip
    for answer, step in forms.items():
        trainer.answer = answer
        gang = ground.gangs().gang(job.id)
        assert gang is not None
        assert progress.read(ground.site, gang).step == step, answer


@pytest.mark.parametrize("address", ["", "/x", "0/x", "99999/x", "1e3/x", "٣/x", "80/a b", "80/\u20ac", "9" * 5_000])
def test_an_address_that_is_none_is_said_to_be_unreadable(address: str) -> None:
    pod = PodObject(status=PodStatus(pod_ip="127.0.0.1"))
    with pytest.raises(fetching.NoAnswer):
        fetching.fetch(pod, address)


class Dripping:
    """A server that sends its answer a byte at a time and never ends it."""

    def __init__(self, first: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._first, self._over = first, threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(self._first)
            while not self._over.wait(0.1):
                connection.sendall(b"1")

    def close(self) -> None:
        self._over.set()
        self._listener.close()


@pytest.mark.parametrize(
    "first",
    [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"],
)
def test_a_server_that_drips_is_left_after_two_seconds_and_half_a_number_is_none(first: bytes) -> None:
    server = Dripping(first)
    pod = PodObject(status=PodStatus(pod_ip="127.0.0.1"))
    began = time.monotonic()
    with pytest.raises(fetching.NoAnswer, match="does not answer"):
        fetching.fetch(pod, f"{server.port}/step")
    assert time.monotonic() - began < fetching.WHOLE_S + 2.0
    server.close()


def test_a_job_at_whose_address_nobody_answers_is_not_stopped_for_its_silence(ground: Ground, trainer: Trainer) -> None:
    ground.nodes(1)
    job = ground.running(ground.job(ranks=1, annotations={"sickbay.dev/progress": "http:1/step"}))
    at_loopback(ground)
    outcome = stop_job(ground.site, ground.stop(job, last_step="140"))
    assert isinstance(outcome, Failed)
    assert outcome.why.startswith("its progress cannot be read: ")


# --- by file ----------------------------------------------------------------------------------------------------------


def test_steps_and_checkpoints_are_read_from_files_of_the_shared_folder(
    api: Api, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    ground = Ground(api, namespace, nodes, progress_root=str(tmp_path))
    ground.nodes(1)
    by_file = {"sickbay.dev/progress": "file:llama/step.json", "sickbay.dev/checkpoints-by": "file:llama/latest"}
    job = ground.running(ground.job(ranks=1, annotations=by_file))
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "step.json").write_text('{"step": 140, "loss": 2.0}')
    (tmp_path / "llama" / "latest").write_text("100\n")
    told: list[Progress] = []
    gangs = ground.gangs()
    assert Pulse(ground.site, gangs, told.append).round() == 1
    assert ([p.step for p in told], gangs.show(job.id).checkpoint) == ([140], gangs.show(job.id).checkpoints[-1])
    assert gangs.show(job.id).checkpoints[-1].step == 100
    (tmp_path / "llama" / "step.json").unlink()
    outcome = stop_job(ground.site, ground.stop(job, last_step="140"))
    assert isinstance(outcome, Failed)
    assert outcome.why == "its progress cannot be read: llama/step.json cannot be read: No such file or directory"


@pytest.mark.parametrize(
    "path",
    ["", ".", "..", "../secret", "a/../../secret", "a/out", "outside/secret", "folder", "pipe", "a\0b", "none"],
)
def test_no_path_leads_out_of_the_shared_folder_and_only_plain_files_are_read(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    for folder in (root, root / "a", root / "folder"):
        folder.mkdir()
    (tmp_path / "secret").write_text("7")
    (root / "a" / "out").symlink_to(tmp_path / "secret")
    (root / "outside").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    with pytest.raises(files.NoFile):
        files.read(str(root), path)


def test_a_large_file_is_read_in_part_and_an_absolute_path_is_one_below_the_folder(tmp_path: Path) -> None:
    (tmp_path / "large").write_text("1" * 1_000_000)
    assert len(files.read(str(tmp_path), "/large")) == files.MOST_BYTES


def test_without_a_folder_to_read_in_a_job_by_file_is_said_to_be_unreadable(tmp_path: Path) -> None:
    with pytest.raises(files.NoFile, match="progress_root"):
        files.read("", "step")


def test_a_file_system_that_never_answers_holds_up_only_a_few_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def stuck(root: str, parts: list[str]) -> str:
        answers.wait(60)
        return "1"

    monkeypatch.setattr(files, "_read", stuck)
    monkeypatch.setattr(files, "WHOLE_S", 0.05)
    before = threading.active_count()
    for _ in range(3 * files.AT_ONCE):
        with pytest.raises(files.NoFile, match="does not answer"):
            files.read(str(tmp_path), "step")
    assert threading.active_count() - before <= files.AT_ONCE
    answers.set()

    def answered() -> bool:
        with contextlib.suppress(files.NoFile):
            return files.read(str(tmp_path), "step") == "1"
        return False

    until(answered, "it answers again")
