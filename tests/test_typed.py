"""Types that several threads read for the first time at once: msgspec alone may crash the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

READERS = """
import sys, threading
sys.setswitchinterval(1e-6)
import msgspec
from sickbay import wire
from sickbay.kube.api import decode
from sickbay.kube.objects import NodeObject, PodObject
from sickbay.model import Finding, Place, Report, Status

finding = Finding("b/1", "agent", "smi", Place("n"), Status.OK, "", "fine")
report = wire.encode(Report("n", "b", 1, 1.0, findings=(finding,)))
node = b'{"metadata":{"name":"n","labels":{}},"spec":{"taints":[{"key":"k"}]},"status":{"conditions":[{"type":"a"}]}}'
pod = b'{"metadata":{"name":"p"},"spec":{"containers":[{"resources":{"limits":{}}}]},"status":{"conditions":[]}}'
ready, wrong = threading.Barrier(9), []

def read(how, *what):
    ready.wait()
    try:
        how(*what)
    except BaseException as error:
        wrong.append(error)

asks = [(decode, NodeObject, node), (decode, PodObject, pod), (wire.decode, Report, report)] * 3
threads = [threading.Thread(target=read, args=ask) for ask in asks]
[t.start() for t in threads]
[t.join() for t in threads]
sys.exit(len(wrong))
"""


@pytest.mark.parametrize("turn", range(3))
def test_first_reads_from_many_threads_at_once_crash_nothing(turn: int) -> None:
    """Before sickbay/typed.py three of four such processes died of a segmentation fault."""
    done = subprocess.run([sys.executable, "-c", READERS], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
