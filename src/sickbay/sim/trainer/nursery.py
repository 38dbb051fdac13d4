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
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import sickbay
from sickbay.errors import SickbayError, UserError
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
        with self._lock:
            if not self._control:
                self._open()
            return int(self._ask({"do": "fork", "spec": spec.to_json()}, fds)["pid"])

    def signal(self, pid: int, number: signal.Signals) -> int | None:
        """After SIGSTOP it has stopped. The exit code, should it have ended just before, else None."""
        with self._lock:
            return _code(self._ask({"do": "signal", "pid": pid, "signal": int(number)}))

    def reap(self, pid: int, within_s: float = REAP_S) -> int | None:
        """How it ended (negative: by that signal); None if it has not within this time."""
        with self._lock:
            return _code(self._ask({"do": "reap", "pid": pid, "within_s": within_s}))

    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def close(self) -> None:
        """The forker kills what still lives and ends; nothing is left behind."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._control:
            self._control.close()
        if self._process:
            _end(self._process)
        self._control, self._process, self._asked = None, None, 0

    def _ask(self, request: dict[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        if not self._control:
            raise SickbayError("the process that forks trainer ranks is closed, and its ranks are gone with it")
        self._asked += 1
        line = json.dumps({**request, "n": self._asked}).encode() + b"\n"
        try:
            socket.send_fds(self._control, [line], list(fds))
            return _read_answer(self._control, self._asked)
        except OSError as error:
            self._close()
            raise SickbayError(f"the process that forks trainer ranks died ({error}); start the gang again") from None

    def _open(self) -> None:
        if find_spec("numpy") is None:
            raise UserError("the trainer needs numpy: install the extra sickbay[demo]")
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sickbay.sim.trainer.forker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the starter, which then stops the ranks in order
            )
        self._control.settimeout(START_S)
        try:
            _read_answer(self._control, 0)
        except OSError:
            self._close()
            raise SickbayError("the process that forks trainer ranks did not start; its error is above") from None


def _code(answer: dict[str, Any]) -> int | None:
    if "unknown" in answer:
        raise SickbayError("this rank belonged to an earlier forker and is gone with it")
    return None if answer["code"] is None else int(answer["code"])


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
