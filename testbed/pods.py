"""Pods of our own Jobs, as a kubelet treats them: started, run, ended, each written to the pod's status."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import msgspec

from sickbay.cli import node as node_command
from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, Meta, Shape
from sickbay.ports import Host
from sickbay.settings import AgentSettings, Settings

TERMINATION_BYTES = 4_096  # a kubelet cuts there
TYPE = "p5.48xlarge"
OUTAGE_S, AGAIN_S = 120.0, 0.2


class JobContainer(Shape):
    name: str = ""
    image: str = ""
    command: list[str] | None = None


class JobPodSpec(Shape):
    node_name: str = ""
    containers: list[JobContainer] | None = None


class JobPod(Shape):
    """A pod and what it runs."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: JobPodSpec = msgspec.field(default_factory=JobPodSpec)


def run_command(pod: JobPod, host: Host, state_dir: Path, log: Path, out: TextIO) -> int:
    """What the container would do, here: `sickbay node …` on this host. Returns its exit code."""
    argv = list((pod.spec.containers or [JobContainer()])[0].command or ())
    if argv[:2] != ["sickbay", "node"]:
        log.write_text(f"this kubelet runs only our own commands, not {argv[:3]}")
        return 127
    agent = AgentSettings(node_name=host.name, state_dir=str(state_dir), instance_type=TYPE)
    bench = node_command.Bench(host, Settings(agent=agent), log, out, sleep=lambda _: None)
    token = node_command.BENCH.set(bench)
    try:
        node_command.app(args=argv[2:], standalone_mode=False, prog_name="sickbay node")
        return 0
    except SystemExit as stop:
        return int(stop.code or 0)
    except Exception as error:
        log.write_text(f"{type(error).__name__}: {error}")
        return 1
    finally:
        node_command.BENCH.reset(token)


def word_of(pod: JobPod) -> str:
    """What it is to do: the "check" of `sickbay node check …`."""
    argv = (pod.spec.containers or [JobContainer()])[0].command or ()
    return argv[2] if len(argv) > 2 else ""


def started(api: Api, pod: JobPod) -> str:
    now = _now()
    _write(api, pod, "Running", {"running": {"startedAt": now}}, began=now, ready=True)
    return now


def ended(api: Api, pod: JobPod, began: str, code: int, log: Path) -> None:
    message = log.read_bytes()[-TERMINATION_BYTES:].decode("utf-8", "replace") if log.exists() else ""
    state = {
        "exitCode": code, "reason": "Completed" if code == 0 else "Error", "message": message, "startedAt": began,
        "finishedAt": _now(),
    }  # fmt: skip
    _write(api, pod, "Failed" if code else "Succeeded", {"terminated": state}, began=began, ready=False)


def _write(api: Api, pod: JobPod, phase: str, state: dict[str, Any], *, began: str, ready: bool) -> None:
    meta, container = pod.metadata, (pod.spec.containers or [JobContainer()])[0]
    said = "True" if ready else "False"
    status = {
        "phase": phase, "startTime": began,
        "conditions": [{"type": kind, "status": said} for kind in ("Ready", "ContainersReady")],
        "containerStatuses": [
            {"name": container.name, "image": container.image, "imageID": "", "ready": ready, "started": ready,
             "restartCount": 0, "state": state}
        ],
    }  # fmt: skip
    _insist(lambda: api.patch(f"{names.pod(meta.namespace, meta.name)}/status", {"status": status}, Anything,
                              how="strategic"))  # fmt: skip


def _insist(write: Callable[[], object]) -> None:
    """As a kubelet does: until the server is back. A pod that was deleted meanwhile is shrugged at."""
    end = time.monotonic() + OUTAGE_S
    while True:
        try:
            write()
            return
        except ApiError as error:
            if error.not_found or error.conflict or error.refused:
                return
            if time.monotonic() > end:
                raise
            time.sleep(AGAIN_S)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
