"""Running checks: always an answer, OK only where something was seen, severities from the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from sickbay.catalog import load
from sickbay.checks.run import run
from sickbay.model import Severity, Status
from sickbay.ports import Completed
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed
from tests.checks.test_dcgm_diag import PASS, failed, result
from tests.checks.test_nvidia_smi import text

EVERY = ["nvidia-smi", "dcgm-l2", "dcgm-l4", "kernel-log"]


def healthy() -> SpokenHost:
    answers = {
        "nvidia-smi": printed(text(*[{}] * 8)),
        "nvidia-smi --query-compute-apps=pid,process_name": printed(""),
        "nvidia-smi --query-gpu=index,mig.mode.current": printed("".join(f"{n}, Disabled\n" for n in range(8))),
        "dcgmi": printed(result(PASS)),
    }
    return SpokenHost(answers, ["[1.0] usb 1-1: new"])


def test_a_healthy_host_answers_ok_once_per_check() -> None:
    found = run(healthy(), EVERY, load(), answers="n.1/3", expected_gpus=8, at=5.0)
    assert [(f.check, f.status, f.code, f.severity) for f in found] == [
        (n, Status.OK, "", Severity.NONE) for n in EVERY
    ]
    assert [f.id for f in found] == [f"boot-a/{n}" for n in (1, 2, 3, 4)]
    assert {f.answers for f in found} == {"n.1/3"}


def test_without_tools_nothing_is_ok() -> None:
    for answer in (MISSING, TIMED_OUT, printed("", 127)):
        found = run(SpokenHost({"nvidia-smi": answer, "dcgmi": answer}), ["nvidia-smi", "dcgm-l2"], load(), at=0.0)
        assert {f.status for f in found} == {Status.UNKNOWN}
        assert {f.severity for f in found} == {Severity.NONE}


def test_a_check_that_breaks_is_unknown_and_the_others_still_run() -> None:
    class Broken(SpokenHost):
        def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
            raise OSError("no more processes")

    found = run(
        Broken(lines=["[1.0] NVRM: Xid (PCI:0000:3b:00): 79, lost"]), ["nvidia-smi", "kernel-log"], load(), at=0.0
    )
    assert [(f.status, f.code) for f in found] == [(Status.UNKNOWN, "tool.failed"), (Status.FAILED, "xid.79")]
    assert found[1].severity is Severity.REBOOT


def test_an_index_gets_its_address_and_serial_from_the_inventory() -> None:
    host = healthy()
    host.answers["dcgmi"] = printed(result(PASS, failed(80)))
    (bad,) = (f for f in run(host, ["nvidia-smi", "dcgm-l2"], load(), expected_gpus=8, at=0.0) if f.code)
    assert (bad.place.device, bad.part, bad.severity) == ("0000:13:00", "16537213", Severity.REPLACE)


def test_only_records_after_the_cursor_are_judged_and_ids_go_on() -> None:
    host = SpokenHost(lines=["[1.0] NVRM: Xid (PCI:0000:3b:00): 79, lost"])
    (found,) = run(host, ["kernel-log"], load(), at=0.0, cursor="1", sequence=count(40))
    assert (found.status, found.id) == (Status.OK, "boot-a/40")


def test_an_unknown_check_is_unknown() -> None:
    (found,) = run(healthy(), ["horoscope"], load(), at=0.0)
    assert found.status is Status.UNKNOWN
