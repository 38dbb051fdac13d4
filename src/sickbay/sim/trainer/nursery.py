"""The starter's side of the forker: fork a rank, send it a signal, learn how it ended.

Used by Gang; share one Nursery between gangs (and across restarts) to pay for numpy once. It must never signal
a process itself: only the forker knows for sure that a number still belongs to its child.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import sickbay
from sickbay.errors import SickbayError
from sickbay.sim.trainer.spec import Spec

START_S = 60.0
REAP_S = 20.0

# More threads in the arithmetic would only fight for the cores, and change the order of sums.
ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "BLIS_NUM_THREADS",
    ),
    "1",
)


class Nursery:
    """Thread-safe: one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._asked = 0

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def fork(self, spec: Spec, fds: Sequence[int]) -> int:
        pid = self._ask({"do": "fork", "spec": spec.to_json()}, fds)["pid"]
        return int(pid)

    def signal(self, pid: int, number: signal.Signals) -> int | None:
        """After SIGSTOP it has stopped. The exit code, should it have ended just before, else None."""
        code = self._ask({"do": "signal", "pid": pid, "signal": int(number)})["code"]
        return None if code is None else int(code)

    def reap(self, pid: int, within_s: float = REAP_S) -> int | None:
        """How it ended (negative: by that signal); None if it has not, or was reaped before."""
        code = self._ask({"do": "reap", "pid": pid, "within_s": within_s})["code"]
        return None if code is None else int(code)

    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def close(self) -> None:
        """The forker kills what still lives and ends; nothing is left behind."""
        with self._lock:
            if self._control:
                self._control.close()
            if self._process:
                _end(self._process)
            self._control = self._process = None
            self._asked = 0

    def _ask(self, request: dict[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        with self._lock:
            control = self._control or self._open()
            self._asked += 1
            try:
                socket.send_fds(control, [json.dumps({**request, "n": self._asked}).encode() + b"\n"], list(fds))
                return _read_answer(control, self._asked)
            except OSError as error:
                raise SickbayError(
                    f"the process that forks trainer ranks is gone ({error}); start the gang again"
                ) from None

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "sickbay.sim.trainer.forker", str(theirs.fileno())]
            # Its own session: Ctrl-C in the terminal is for the starter, which then stops the ranks in order.
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._control = ours
        ours.settimeout(START_S)
        try:
            _read_answer(ours, 0)
        except OSError:
            ours.close()
            _end(self._process)
            self._control = self._process = None
            raise SickbayError(
                "trainer ranks cannot start: see the error above; if numpy is missing, install the extra sickbay[demo]"
            ) from None
        return ours


def _environment() -> dict[str, str]:
    source = str(Path(sickbay.__file__).parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, (source, inherited)))}


def _read_answer(control: socket.socket, number: int) -> dict[str, Any]:
    """The answer to this request; one to a request that Ctrl-C interrupted is passed over."""
    data = b""
    while True:
        part = control.recv(65536)
        if not part:
            raise ConnectionResetError("end of file")
        *whole, data = (data + part).split(b"\n")
        for line in whole:
            answer = json.loads(line)
            if answer["n"] == number:
                return dict(answer)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(REAP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
