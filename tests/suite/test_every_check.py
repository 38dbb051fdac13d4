"""What holds for every check there is, whatever the node answers: no exception, no false alarm, no false pass.

A new check is covered by being in checks.ALL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.catalog import load
from sickbay.checks import ALL
from sickbay.checks.run import run
from sickbay.checks.signs import Ask, Check
from sickbay.model import Finding, Severity, Status
from sickbay.ports import Completed
from tests.checks.hosts import MISSING, TIMED_OUT
from tests.fuzzing import EXAMPLES

STUCK = Completed(None, "", "", timed_out=True, stuck=True)
GARBAGE = "\x00\ufffd{]} <xml> \x1b[31m 0, , N/A\n" * 40
PROFILE = load().profiles["p5.48xlarge"]
BY_EACH = pytest.mark.parametrize("check", ALL, ids=lambda check: check.name)


@dataclass
class UniformHost:
    """Gives every command the same answer, every file the same text, every folder the same names."""

    answer: Completed
    text: str | None = None
    folder: tuple[str, ...] | None = None
    lines: tuple[str, ...] = ()
    name: str = "node-1"

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        return self.answer

    def read(self, path: str) -> str | None:
        return self.text

    def names(self, path: str) -> tuple[str, ...] | None:
        return self.folder

    def fetch(
        self, url: str, timeout_s: float, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> str | None:
        return self.text

    def kernel_lines(self, cursor: str) -> tuple[list[str], str]:
        return list(self.lines), "boot:1"

    def boot_id(self) -> str:
        return "boot"


class BrokenHost(UniformHost):
    """Every door raises: worse than the contract allows."""

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        raise OSError("no more processes")

    def read(self, path: str) -> str | None:
        raise OSError("input/output error")

    def names(self, path: str) -> tuple[str, ...] | None:
        raise OSError("input/output error")


# Nothing of this waits: checks that retry or let things settle take these instead.
OPTIONS = {"efa-retry-s": "0", "efa-settle-s": "0", "shared-paths": "/fsx", "imds": "http://127.0.0.1:9"}


def looked(check: Check, host: UniformHost, suite: str = "quarantine") -> list[Finding]:
    ask = Ask(profile=PROFILE, suite=suite, nodes=2, options=OPTIONS, uptime_s=90_000.0)
    return run(host, [check.name], load(), at=1_000_000.0, ask=ask)


def harmless(found: list[Finding]) -> None:
    for one in found:
        assert one.severity <= Severity.MONITOR, f"{one.code}: {one.reason}"
        assert one.reason.strip()
        assert len(one.reason) < 1_000


def unbroken(found: list[Finding]) -> None:
    """The runner's own word for a check that raised: it is caught there, and still a bug of the check."""
    assert not [one for one in found if " broke: " in one.reason]


@BY_EACH
@pytest.mark.parametrize("answer", [MISSING, TIMED_OUT], ids=["missing", "times out"])
def test_a_check_without_its_tool_neither_alarms_nor_passes(check: Check, answer: Completed) -> None:
    """originals 002.12 #4, 001.9 #9: a tool that was not there, or printed nothing, was a pass."""
    found = looked(check, UniformHost(answer))
    assert found
    harmless(found)
    if needs_a_tool(check):
        assert Status.OK not in {one.status for one in found}, [one.reason for one in found]


def needs_a_tool(check: Check) -> bool:
    """These look through a command; the others read files, and say what an absent file means themselves."""
    return check.name in {
        "nvidia-smi", "dcgm-l2", "topology", "dcgm-l4", "nccl-allreduce", "efa-loopback", "dcgm-health",
        "nvlink-errors", "gpu-slowdown", "gpu-processes", "gpu-matmul", "gpu-speed", "clock", "shared-storage",
    }  # fmt: skip


@BY_EACH
@pytest.mark.parametrize("code", [0, 1, 126, 127, 255, -9, -11])
@pytest.mark.parametrize("text", ["", GARBAGE], ids=["nothing", "garbage"])
def test_garbage_neither_alarms_nor_raises(check: Check, code: int, text: str) -> None:
    found = looked(check, UniformHost(Completed(code, text, text), text))
    assert found
    harmless(found)
    unbroken(found)


@BY_EACH
def test_a_host_that_raises_makes_an_unknown(check: Check) -> None:
    found = looked(check, BrokenHost(MISSING))
    harmless(found)
    if check.name != "kernel-log":
        assert {one.status for one in found} == {Status.UNKNOWN}


@BY_EACH
def test_a_command_in_d_state_is_never_a_pass(check: Check) -> None:
    """originals 003.5 #5. Only the driver's own tool says something about the driver, and that needs three looks."""
    found = looked(check, UniformHost(STUCK))
    for one in found:
        assert one.severity <= Severity.MONITOR or one.code in ("smi.driver-hung", "storage.hung"), one
    if needs_a_tool(check):
        assert Status.OK not in {one.status for one in found}


@settings(max_examples=max(EXAMPLES // 10, 20), deadline=None)
@given(
    text=st.text(max_size=200),
    words=st.lists(st.sampled_from(["GPU", "NV18", "Failed", "Yes", "0x", "Xid", "{", "}", "[N/A]", "100", "\n"])),
    code=st.sampled_from([0, 1, 255]),
)
def test_fuzz_no_text_makes_any_check_raise_or_replace_a_node(text: str, words: list[str], code: int) -> None:
    said = text + " ".join(words)
    host = UniformHost(Completed(code, said, said), said, ("0", "a"), (said.replace("\n", " "),))
    for check in ALL:
        found = looked(check, host)
        assert found
        assert all(one.severity < Severity.REPLACE for one in found)
        unbroken(found)
