"""InfiniBand and RoCE ports: down for minutes, flapping, slower than before; and all that is no fault."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.checks.infiniband import CHECK
from sickbay.checks.infiniband_text import printed_ports
from sickbay.checks.series import Series
from sickbay.checks.signs import Ask, Sign
from sickbay.model import Severity, Status
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed
from tests.checks.network import codes, efa_host, found, looked

UP = ("4: ACTIVE", "5: LinkUp")
DOWN = ("1: DOWN", "2: Polling")
OFF = ("1: DOWN", "3: Disabled")


def host_with(
    *states: tuple[str, str], downed: int = 0, rate: str = "400 Gb/sec (4X NDR)", layer: str = "InfiniBand"
) -> SpokenHost:
    host = SpokenHost()
    host.folders["/sys/class/infiniband"] = tuple(f"mlx5_{n}" for n in range(len(states)))
    for n, (state, physical) in enumerate(states):
        root = f"/sys/class/infiniband/mlx5_{n}"
        host.folders[f"{root}/ports"] = ("1",)
        host.files |= {
            f"{root}/device/vendor": "0x15b3\n", f"{root}/ports/1/state": state + "\n",
            f"{root}/ports/1/phys_state": physical + "\n", f"{root}/ports/1/rate": rate + "\n",
            f"{root}/ports/1/link_layer": layer + "\n", f"{root}/ports/1/counters/link_downed": f"{downed}\n",
        }  # fmt: skip
    return host


def polls(*moments: tuple[float, SpokenHost], uptime_s: float = 90_000.0) -> list[Sign]:
    """The signs of the last of these polls."""
    series, told = Series(), list[Sign]()
    for at, host in moments:
        told = looked(CHECK, host, Ask(at=at, series=series, uptime_s=uptime_s))
    return told


def test_ports_that_are_up_have_nothing_to_say() -> None:
    assert polls((0, host_with(*[UP] * 8)), (300, host_with(*[UP] * 8))) == []


def test_a_port_down_for_four_minutes_is_down() -> None:
    (sign,) = polls((0, host_with(UP, UP)), (60, host_with(UP, DOWN)), (300, host_with(UP, DOWN)))
    assert sign.code == "nic.link-down"
    assert sign.reason == "port mlx5_1:1 has no link for 240 s (down, polling)"
    assert found(sign).severity is Severity.REBOOT


def test_a_port_down_for_less_is_only_watched() -> None:
    (sign,) = polls((0, host_with(UP)), (60, host_with(DOWN)), (299, host_with(DOWN)))
    assert found(sign).severity is Severity.MONITOR


def test_a_port_that_came_back_is_well() -> None:
    assert polls((0, host_with(UP)), (300, host_with(DOWN)), (900, host_with(DOWN)), (1200, host_with(UP))) == []


def test_within_the_boot_grace_a_port_down_is_only_watched() -> None:
    (sign,) = polls((0, host_with(UP)), (100, host_with(DOWN)), (500, host_with(DOWN)), uptime_s=400.0)
    assert found(sign).severity is Severity.MONITOR


@pytest.mark.parametrize("state", [DOWN, OFF])
def test_a_port_nobody_ever_saw_up_is_no_fault(state: tuple[str, str]) -> None:
    assert polls(*((at, host_with(UP, state)) for at in (0.0, 300.0, 9000.0))) == []


def test_a_link_lost_before_we_watched_is_never_treated() -> None:
    signs = polls(*((at, host_with(DOWN, downed=2)) for at in (0.0, 300.0, 9000.0)))
    assert [(sign.code, found(sign).severity) for sign in signs] == [("nic.link-down", Severity.MONITOR)]


def test_a_port_switched_off_by_somebody_is_a_setting() -> None:
    (sign,) = polls((0, host_with(UP)), (300, host_with(OFF)), (900, host_with(OFF)))
    assert (sign.code, found(sign).severity) == ("nic.port-disabled", Severity.MONITOR)


def test_three_losses_of_link_in_twelve_hours_are_a_flapping_port() -> None:
    rounds = [(at * 300.0, host_with(DOWN if at % 2 else UP)) for at in range(7)]
    (sign,) = polls(*rounds)
    assert (sign.code, sign.count, found(sign).severity) == ("nic.flapping", 3, Severity.REBOOT)
    assert polls(*rounds[:5]) == []


def test_flaps_between_two_polls_are_known_by_the_adapters_counter() -> None:
    assert polls((0, host_with(UP, downed=7)), (300, host_with(UP, downed=9))) == []
    (sign,) = polls((0, host_with(UP, downed=7)), (300, host_with(UP, downed=10)))
    assert (sign.code, sign.count) == ("nic.flapping", 3)


def test_a_counter_full_since_long_ago_is_no_flap() -> None:
    """A recorded H100 host shows link_downed 255, where the counter stops, on a port that is well."""
    assert polls((0, host_with(UP, downed=255)), (300, host_with(UP, downed=255))) == []


def test_a_counter_cleared_by_a_reboot_is_no_flap() -> None:
    assert polls(*((at * 300.0, host_with(UP, downed=n)) for at, n in enumerate((5, 1, 4 - 3, 1, 1)))) == []


def test_flaps_older_than_twelve_hours_do_not_count() -> None:
    old = [(at * 300.0, host_with(DOWN if at % 2 else UP)) for at in range(7)]
    assert polls(*old, (50_000.0, host_with(UP))) == []


def test_a_port_slower_than_before_is_watched() -> None:
    (sign,) = polls((0, host_with(UP)), (300, host_with(UP, rate="100 Gb/sec (1X NDR)")))
    assert sign.reason == "port mlx5_0:1 runs at 100 Gb/s and ran at 400 Gb/s before"
    assert found(sign).severity is Severity.MONITOR


def test_a_roce_port_is_judged_like_an_infiniband_port() -> None:
    up, down = host_with(UP, layer="Ethernet"), host_with(("1: DOWN", "3: Disabled"), layer="Ethernet")
    assert codes(
        polls((0, up), (300, host_with(DOWN, layer="Ethernet")), (600, host_with(DOWN, layer="Ethernet")))
    ) == ["nic.link-down"]
    assert codes(polls((0, up), (300, down))) == ["nic.port-disabled"]


def test_efa_adapters_are_left_to_their_own_checks() -> None:
    assert looked(CHECK, efa_host(), Ask()) == []


def test_a_machine_without_rdma_has_nothing_to_judge() -> None:
    assert looked(CHECK, SpokenHost(answers={"ibstat": MISSING}), Ask()) == []


def test_ibstat_that_does_not_answer_is_unknown() -> None:
    (sign,) = looked(CHECK, SpokenHost(answers={"ibstat": TIMED_OUT}), Ask())
    assert sign.status is Status.UNKNOWN


def test_states_nobody_can_read_are_unknown() -> None:
    host = host_with(UP)
    host.files = {path: text for path, text in host.files.items() if not path.endswith("/state")}
    (sign,) = looked(CHECK, host, Ask())
    assert sign.status is Status.UNKNOWN


IBSTAT = """CA 'mlx5_0'
        CA type: MT4129
        Number of ports: 1
        Port 1:
                State: {state}
                Physical state: {physical}
                Rate: 400
                Link layer: InfiniBand
"""


def test_ibstat_is_asked_where_sysfs_is_not_there_and_says_the_same() -> None:
    series = Series()
    for at, state, physical in ((0.0, "Active", "LinkUp"), (300.0, "Down", "Polling"), (600.0, "Down", "Polling")):
        host = SpokenHost(answers={"ibstat": printed(IBSTAT.format(state=state, physical=physical))})
        signs = looked(CHECK, host, replace(Ask(), at=at, series=series))
    assert codes(signs) == ["nic.link-down"]


DEVINFO = """hca_id:\tmlx5_ib0
\ttransport:\t\tInfiniBand (0)
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tlink_layer:\t\tInfiniBand
"""


def test_ibv_devinfo_is_read_too() -> None:
    (port,) = printed_ports(DEVINFO)
    assert (port.name, port.up, port.layer) == ("mlx5_ib0:1", True, "InfiniBand")
