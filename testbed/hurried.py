"""The real controller process in a hurry: `python -m testbed.hurried CONFIG [SKEW_S [POINT …]]`.

After a boot real GPUs need a minute before their silence means anything, and long work is asked about every 15 s;
simulated machines need neither, and a test has no minute. For tests, benchmarks and the demo. SKEW_S: this machine's
wall clock is wrong by so much. POINT, such as KILL:decided:REPAIRING or STOP:asked:REBOOT, is where the process sends
itself that signal, once: when a case was taken to that phase and nothing is written yet (decided), when it is (written;
not every phase is, see core/keeping.py), or when the door was asked for that verb and its answer is not heard yet
(asked). Nothing else changes.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from sickbay import catalog
from sickbay.controller import app, sites
from sickbay.model import Action, Case, Outcome, Started
from sickbay.platforms.kubernetes.platform import KubernetesPlatform
from sickbay.settings_load import load
from sickbay.stores.kubernetes import KubernetesStore


def main(config: str, skew_s: float, points: Sequence[str]) -> None:
    known = catalog.load()
    faults = {name: dataclasses.replace(fault, settle_s=0.0) for name, fault in known.faults.items()}
    vars(app)["load"] = lambda: dataclasses.replace(known, faults=faults)
    sites.RealClock.now = lambda self: time.time() + skew_s  # type: ignore[method-assign]
    _ask_often()
    if points:
        _end_at(Points(points))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    app.run(load(config).settings, stop)


def _ask_often() -> None:
    perform = KubernetesPlatform.perform

    def hurried(self: KubernetesPlatform, action: Action) -> Outcome:
        outcome = perform(self, action)
        return (
            dataclasses.replace(outcome, after_s=min(outcome.after_s, 1.0)) if isinstance(outcome, Started) else outcome
        )

    KubernetesPlatform.perform = hurried  # type: ignore[method-assign]


class Points(logging.Handler):
    """Where the process ends or stands still. It hears of each decision by the line that the desk writes about it."""

    def __init__(self, points: Sequence[str]) -> None:
        super().__init__()
        self._left = {(when, what): signal.Signals[f"SIG{name}"] for name, when, what in (p.split(":") for p in points)}

    def reach(self, when: str, what: str) -> None:
        if (sent := self._left.pop((when, what), None)) is not None:
            os.kill(os.getpid(), sent)

    def emit(self, record: logging.LogRecord) -> None:
        if found := re.match(r"case=\S+ phase=(\w+) ", record.getMessage()):
            self.reach("decided", found[1])


def _end_at(points: Points) -> None:
    perform = KubernetesPlatform.perform
    logging.getLogger("sickbay.controller.desk").addHandler(points)

    def asked(self: KubernetesPlatform, action: Action) -> Outcome:
        outcome = perform(self, action)
        points.reach("asked", action.verb)
        return outcome

    def then_written(write: Callable[..., int]) -> Any:
        def written(self: KubernetesStore, value: Any, *more: Any, **named: Any) -> int:
            version = write(self, value, *more, **named)
            points.reach("written", value.phase if isinstance(value, Case) else "")
            return version

        return written

    KubernetesPlatform.perform = asked  # type: ignore[method-assign]
    KubernetesStore.create = then_written(KubernetesStore.create)  # type: ignore[method-assign]
    KubernetesStore.commit = then_written(KubernetesStore.commit)  # type: ignore[method-assign]


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0, sys.argv[3:])
