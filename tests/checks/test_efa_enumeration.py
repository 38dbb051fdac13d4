"""Check 2, EFA adapters: what is missing, what is only set up wrongly, and what is not ours to judge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sickbay.checks.efa_enumeration import CHECK, RETRIES, memlock_gib
from sickbay.checks.signs import Ask
from sickbay.model import Severity, Status
from tests.checks.hosts import MISSING, TIMED_OUT, printed
from tests.checks.network import ENA, P5EN, codes, efa_host, fi_info, found, looked, lspci, small


def asking(**known: Any) -> Ask:
    return Ask(profile=small(), **known)


def test_a_node_with_all_its_adapters_has_nothing_to_say() -> None:
    assert looked(CHECK, efa_host(), asking()) == []


def test_a_missing_adapter_is_the_nodes_fault_and_its_reason_counts() -> None:
    (sign,) = looked(CHECK, efa_host(3), asking())
    assert (sign.code, sign.reason) == ("nic.missing", "3 of 4 EFA adapters are here: 1 missing from the PCI bus")
    assert found(sign).severity is Severity.REBOOT


def test_within_the_boot_grace_a_missing_adapter_is_only_watched() -> None:
    (sign,) = looked(CHECK, efa_host(3), asking(uptime_s=60.0))
    assert found(sign).severity is Severity.MONITOR


def test_an_unknown_type_is_unknown_and_never_a_pass() -> None:
    """originals 002.12 #3: with the profile lost, counts were switched off and the check passed."""
    (sign,) = looked(CHECK, efa_host(3), Ask())
    assert (sign.code, sign.status) == ("profile.unknown", Status.UNKNOWN)
    assert "3 EFA adapters are here" in sign.reason
    bare = efa_host(0)
    assert [s.status for s in looked(CHECK, bare, Ask())] == [Status.UNKNOWN]


def test_a_profile_without_a_number_does_not_judge_and_says_so() -> None:
    (sign,) = looked(CHECK, efa_host(2), Ask(profile=small(efas=0)))
    assert (sign.code, sign.status) == ("", Status.OK)
    assert "not counted" in sign.reason


def test_a_machine_that_is_not_amazons_needs_no_adapter_and_no_profile() -> None:
    host = efa_host(0)
    host.answers["lspci"] = printed("0000:17:00.0 3D controller: NVIDIA Corporation GH100 (rev a1)\n")
    (sign,) = looked(CHECK, host, Ask())
    assert (sign.code, sign.status) == ("", Status.OK)


def test_a_node_launched_without_adapters_is_not_sick() -> None:
    (sign,) = looked(CHECK, efa_host(0), asking())
    assert sign.code == "efa.none"
    assert found(sign).severity is Severity.MONITOR


def test_a_node_that_loses_all_its_adapters_is_sick() -> None:
    ask = Ask(profile=small(), at=100.0)
    looked(CHECK, efa_host(4), ask)
    (sign,) = looked(CHECK, efa_host(0), replace(ask, at=400.0))
    assert (sign.code, found(sign).severity) == ("nic.missing", Severity.REBOOT)


def test_a_setting_may_say_that_fewer_were_attached() -> None:
    assert looked(CHECK, efa_host(2), asking(options={"efa-count": "2"})) == []


def test_an_adapter_that_answers_with_ones_fell_off_the_bus() -> None:
    host = efa_host(3)
    host.answers["lspci"] = printed(
        lspci(3) + "0000:40:00.0 Ethernet controller: Amazon.com, Inc. Device efa2 (rev ff)\n"
    )
    (sign,) = looked(CHECK, host, asking())
    assert (sign.code, sign.device) == ("nic.fell-off-bus", "0000:40:00")


def test_an_adapter_its_driver_did_not_start_is_found() -> None:
    signs = looked(CHECK, efa_host(4, bound=3), asking())
    assert codes(signs) == ["nic.unbound"]
    assert "1 of 4" in signs[0].reason


def test_modules_that_are_not_loaded_are_a_setting_and_accuse_no_adapter() -> None:
    host = efa_host(4, bound=0)
    host.folders["/sys/module"] = ("ib_core",)
    host.folders.pop("/sys/class/infiniband")
    signs = looked(CHECK, host, asking())
    assert set(codes(signs)) == {"efa.module", "efa.provider"}
    assert {found(sign).severity for sign in signs} == {Severity.MONITOR}


def test_the_kernels_own_list_does_where_lspci_is_missing() -> None:
    host = efa_host(4)
    host.answers.pop("lspci")
    host.folders["/sys/bus/pci/devices"] = (
        "0000:00:05.0",
        "0000:10:00.0",
        "0000:11:00.0",
        "0000:12:00.0",
        "0000:53:00.0",
    )
    for address, vendor, device in [
        ("00:05.0", "0x1d0f", "0xec20"), ("10:00.0", "0x1d0f", "0xefa2"), ("11:00.0", "0x1d0f", "0xefa2"),
        ("12:00.0", "0x1d0f", "0xefa2"), ("53:00.0", "0x10de", "0x2330"),
    ]:  # fmt: skip
        host.files[f"/sys/bus/pci/devices/0000:{address}/vendor"] = vendor + "\n"
        host.files[f"/sys/bus/pci/devices/0000:{address}/device"] = device + "\n"
    assert codes(looked(CHECK, host, asking())) == ["nic.missing"]


@pytest.mark.parametrize("answer", [MISSING, TIMED_OUT])
def test_nothing_to_count_with_is_unknown(answer: object) -> None:
    host = efa_host(0)
    host.answers["lspci"] = answer  # type: ignore[assignment]
    host.folders.pop("/sys/class/infiniband")
    assert [sign.status for sign in looked(CHECK, host, asking())] == [Status.UNKNOWN]


def test_adapters_are_counted_by_domain_whatever_libfabrics_age() -> None:
    """originals 002.5 counts lines; three entries a NIC (2.x) would hide two NICs in three."""
    assert looked(CHECK, efa_host(4), asking()) == []
    (sign,) = looked(CHECK, efa_host(4, offered=2), asking())
    assert (sign.code, sign.reason) == ("efa.provider", "libfabric offers 2 of 4 EFA adapters")


@pytest.mark.parametrize("said", ["fi_getinfo: -61\n", "fi_getinfo: -61 (No data available)\n"])
def test_a_libfabric_without_the_provider_is_a_setting_and_is_quoted(said: str) -> None:
    host = efa_host()
    host.answers["fi_info"] = printed("", 61, said)
    (sign,) = looked(CHECK, host, asking())
    assert (sign.code, sign.evidence) == ("efa.provider", (said.strip(),))


def test_fi_info_is_found_where_the_efa_installer_puts_it() -> None:
    host = efa_host()
    host.answers["/opt/amazon/efa/bin/fi_info"] = host.answers.pop("fi_info")
    assert looked(CHECK, host, asking()) == []
    host.answers.pop("/opt/amazon/efa/bin/fi_info")
    (sign,) = looked(CHECK, host, asking())
    assert (sign.code, sign.status) == ("tool.missing", Status.UNKNOWN)


def test_device_files_fewer_than_adapters_are_a_setting() -> None:
    host = efa_host()
    host.folders["/dev/infiniband"] = ("uverbs0",)
    assert codes(looked(CHECK, host, asking())) == ["efa.uverbs"]


def test_a_p5en_is_asked_again_before_an_adapter_is_missing_and_only_so_often() -> None:
    host = efa_host(3)
    ask = Ask(profile=small(P5EN), options={"efa-retry-s": "0"})
    assert codes(looked(CHECK, host, ask)) == ["nic.missing"]
    assert host.asked.count("lspci -D") == RETRIES + 1
    other = efa_host(3)
    looked(CHECK, other, asking(options={"efa-retry-s": "0"}))
    assert other.asked.count("lspci -D") == 1


LIMITS = (
    "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         {soft}             unlimited            bytes\n"
)


@pytest.mark.parametrize(
    ("soft", "low"), [("67108864", True), ("17179869184", False), ("unlimited", False), ("x", False)]
)
def test_lockable_memory_is_looked_at_before_a_job_and_not_in_the_agents_cycle(soft: str, low: bool) -> None:
    host = efa_host()
    host.files["/proc/self/limits"] = LIMITS.format(soft=soft)
    assert looked(CHECK, host, asking()) == []
    signs = looked(CHECK, host, asking(suite="prolog"))
    assert codes(signs) == (["efa.memlock"] if low else [])


def test_gdrcopy_is_tried_before_a_job_and_its_failure_is_a_setting() -> None:
    host = efa_host()
    host.answers["/opt/gdrcopy/bin/sanity"] = printed("Total: 12, Passed: 11, Failed: 1\n", 1)
    assert looked(CHECK, host, asking()) == []
    (absent,) = looked(CHECK, host, asking(suite="lightweight"))
    assert (absent.code, "gdrdrv" in absent.reason) == ("efa.gdrcopy", True)
    host.folders["/sys/module"] += ("gdrdrv",)
    (failed,) = looked(CHECK, host, asking(suite="lightweight"))
    assert failed.evidence == ("Total: 12, Passed: 11, Failed: 1",)
    assert found(failed).severity is Severity.MONITOR


def test_more_adapters_than_expected_question_the_profile_not_the_node() -> None:
    (sign,) = looked(CHECK, efa_host(5), asking())
    assert (sign.code, found(sign).severity) == ("efa.count-differs", Severity.MONITOR)


def test_a_word_that_merely_contains_efa_is_no_adapter() -> None:
    """originals 002.5: `grep -ci EFA` counts a line that says default."""
    host = efa_host(3)
    host.answers["lspci"] = printed(lspci(3) + "0000:99:00.0 System peripheral: Default string Device 1234\n")
    assert codes(looked(CHECK, host, asking())) == ["nic.missing"]


def test_an_old_pci_list_still_knows_the_adapter_by_its_number() -> None:
    host = efa_host()
    host.answers["lspci"] = printed(
        ENA
        + "".join(
            f"0000:{n}:00.0 Ethernet controller [0200]: Amazon.com, Inc. Device [1d0f:efa2]\n" for n in (10, 11, 12, 13)
        )
    )
    assert looked(CHECK, host, asking()) == []


def test_memlock_reads_gibibytes() -> None:
    assert memlock_gib(LIMITS.format(soft="1073741824")) == 1.0
    assert memlock_gib("") is None


def test_fi_info_names_each_adapter_once() -> None:
    assert fi_info(4).count("provider:") == 12
