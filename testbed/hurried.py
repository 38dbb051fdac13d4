"""The real controller process in a hurry: `python -m testbed.hurried CONFIG [SKEW_S]`.

After a boot real GPUs need a minute before their silence means anything, and long work is asked about every 15 s;
simulated machines need neither, and a test has no minute. For tests, benchmarks and the demo. SKEW_S: this machine's
wall clock is wrong by so much. Nothing else changes.
"""

from __future__ import annotations

import dataclasses
import signal
import sys
import threading
import time

from sickbay import catalog
from sickbay.controller import app, sites
from sickbay.model import Action, Outcome, Started
from sickbay.platforms.kubernetes.platform import KubernetesPlatform
from sickbay.settings_load import load


def main(config: str, skew_s: float) -> None:
    known = catalog.load()
    faults = {name: dataclasses.replace(fault, settle_s=0.0) for name, fault in known.faults.items()}
    vars(app)["load"] = lambda: dataclasses.replace(known, faults=faults)
    sites.RealClock.now = lambda self: time.time() + skew_s  # type: ignore[method-assign]
    _ask_often()
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


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
