"""Level 4 runs only on free GPUs and leaves the host as it was; the engine is started only for who has the node."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sickbay.checks import dcgm_diag, dcgm_gate
from sickbay.checks.signs import Ask, Check
from sickbay.model import Status
from sickbay.ports import Completed
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed
from tests.checks.test_dcgm_diag import PASS, result

APPS, MIG = " ".join(dcgm_gate.APPS), " ".join(dcgm_gate.MIG)
DEAD = printed("", 235, "Error: unable to establish a connection to the specified host: localhost")
ACTIVE, INACTIVE = printed(""), printed("", 3)


def idle(**answers: Completed) -> SpokenHost:
    """A host with eight free GPUs, an engine that answers and no exporter."""
    mig = "".join(f"{n}, [N/A]\n" for n in range(8))
    told = {
        APPS: printed(""), MIG: printed(mig), "dcgmi discovery": printed("8 GPUs found.\n"),
        "dcgmi diag": printed(result(PASS)), "systemctl is-active": INACTIVE,
    }  # fmt: skip
    return SpokenHost({**told, **answers})


def judged(
    host: SpokenHost, check: Check = dcgm_diag.CHECK_L4, ask: Ask | None = None
) -> list[tuple[str, Status | None]]:
    ask = ask or Ask()
    return [(sign.code, sign.status) for sign in check.judge(check.collect(host, ask), ask)]


def ran(host: SpokenHost) -> bool:
    return any(asked.startswith("dcgmi diag") for asked in host.asked)


def test_on_a_free_host_level_4_runs_and_passes() -> None:
    host = idle()
    assert judged(host) == []
    assert ran(host)


@pytest.mark.parametrize(
    ("what", "answer", "code"),
    [
        (APPS, printed("4711, python\n4712, python\n"), "dcgm.gpus-in-use"),
        (APPS, TIMED_OUT, "dcgm.not-run"),
        (MIG, printed("0, Enabled\n1, Disabled\n"), "dcgm.mig-on"),
        (MIG, printed("0, [Unknown Error]\n"), "dcgm.not-run"),
        (MIG, printed(""), "dcgm.not-run"),
        (MIG, printed("Failed to initialize NVML", 255), "dcgm.not-run"),
        (MIG, MISSING, "dcgm.not-run"),
    ],
)
def test_what_stands_in_the_way_is_unknown_and_nothing_is_started(what: str, answer: Completed, code: str) -> None:
    """The originals fail the node for each of these (002.7); a busy GPU is not a sick one."""
    host = idle(**{what: answer, "systemctl is-active": ACTIVE})
    assert judged(host) == [(code, Status.UNKNOWN)]
    assert not ran(host)
    assert not any("stop" in asked for asked in host.asked)


@pytest.mark.parametrize("mode", ["Disabled", "[N/A]", "N/A", "[Not Supported]"])
def test_gpus_without_mig_are_tested(mode: str) -> None:
    assert judged(idle(**{MIG: printed(f"0, {mode}\n")})) == []


def with_exporter(**answers: Completed) -> SpokenHost:
    return idle(
        **{"systemctl is-active --quiet dcgm-exporter.service": ACTIVE, "systemctl stop": printed(""),
           "systemctl start": printed(""), **answers}
    )  # fmt: skip


def test_the_exporter_is_stopped_for_the_test_and_started_again() -> None:
    host = with_exporter()
    assert judged(host) == []
    order = [asked for asked in host.asked if asked.split()[1] in ("stop", "start", "diag")]
    assert order == [
        "systemctl stop dcgm-exporter.service", "dcgmi diag -r 4 -j", "systemctl start dcgm-exporter.service",
    ]  # fmt: skip


def test_the_exporter_is_started_again_when_the_test_breaks() -> None:
    """originals 002.12 #15: check 4 leaves exporters dead."""

    class Breaking(SpokenHost):
        def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
            if "diag" in argv:
                raise KeyboardInterrupt
            return super().run(argv, timeout_s)

    host = Breaking(with_exporter().answers)
    with pytest.raises(KeyboardInterrupt):
        dcgm_diag.collect_l4(host, Ask())
    assert host.asked[-1] == "systemctl start dcgm-exporter.service"


def test_an_exporter_that_does_not_come_back_is_reported() -> None:
    failed = with_exporter(**{"systemctl start": printed("", 1, "Job for dcgm-exporter.service failed.")})
    assert judged(failed) == [("dcgm.exporter-not-restored", None)]


def test_what_is_no_service_of_ours_is_never_stopped_or_killed() -> None:
    """originals 002.12 #15: it kills exporter processes that it cannot restore. Nor is the fabric manager touched."""
    host = with_exporter()
    judged(host)
    assert not any(word in asked for asked in host.asked for word in ("kill", "fabricmanager"))


@pytest.mark.parametrize("check", [dcgm_diag.CHECK_L2, dcgm_diag.CHECK_L4], ids=lambda check: check.name)
def test_a_dead_engine_is_said_and_not_started(check: Check) -> None:
    host = idle(**{"dcgmi discovery": DEAD})
    assert judged(host, check) == [("dcgm.dead", Status.UNKNOWN)]
    assert not any("start nvidia-dcgm" in asked or "nv-hostengine" in asked for asked in host.asked)


def test_an_engine_that_hangs_is_not_waited_for() -> None:
    host = idle(**{"dcgmi discovery": TIMED_OUT})
    assert judged(host, dcgm_diag.CHECK_L2) == [("dcgm.timeout", Status.UNKNOWN)]
    assert not ran(host)


class Startable(SpokenHost):
    """Its engine answers once somebody has started it."""

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        if argv[0] == "nv-hostengine":
            self.answers["dcgmi discovery"] = printed("8 GPUs found.\n")
        return super().run(argv, timeout_s)


@pytest.mark.parametrize(
    "ask", [Ask(suite="quarantine"), Ask(options={"exclusive": "yes"})], ids=["quarantine", "exclusive"]
)
def test_who_has_the_node_for_himself_gets_an_engine(ask: Ask) -> None:
    host = Startable(idle(**{"dcgmi discovery": DEAD, "nv-hostengine": printed("")}).answers)
    assert judged(host, dcgm_diag.CHECK_L2, ask) == []
    assert ran(host)


def test_the_long_test_has_a_limit_that_no_other_one_cuts() -> None:
    """originals 002.12 #9: its level 4 is killed after 15 minutes."""
    assert dcgm_diag.CHECK_L4.own_limit_s == 9_000.0
    assert dcgm_diag.CHECK_L4.deep
    assert dcgm_diag.CHECK_L2.deep
