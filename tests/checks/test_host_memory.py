"""host-memory: uncorrected is a fault, corrected is watched by rate, and a virtual machine has nothing to see."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.catalog import load
from sickbay.checks import host_memory
from sickbay.checks.run import run
from sickbay.checks.series import Series
from sickbay.checks.signs import Ask, Reading
from sickbay.model import Finding, Severity, Status
from sickbay.ports import Completed
from tests.checks.hosts import SpokenHost
from tests.fuzzing import EXAMPLES

MC = f"{host_memory.EDAC}/mc0"


def node(ce: int = 0, ue: int = 0, **dimms: tuple[int, int]) -> SpokenHost:
    host = SpokenHost(folders={host_memory.EDAC: ("mc0", "power"), MC: ("ce_count", *dimms)})
    host.files = {f"{MC}/ce_count": f"{ce}\n", f"{MC}/ue_count": f"{ue}\n"}
    for name, (corrected, uncorrected) in dimms.items():
        host.files |= {f"{MC}/{name}/dimm_ce_count": f"{corrected}\n", f"{MC}/{name}/dimm_ue_count": f"{uncorrected}\n"}
        host.files[f"{MC}/{name}/dimm_label"] = f"CPU_SrcID#0_{name.upper()}\n"
    return host


def polled(*hosts: SpokenHost, every: float = 300.0) -> list[Finding]:
    kept = Series()
    found: list[Finding] = []
    for n, host in enumerate(hosts):
        found = run(host, ["host-memory"], load(), at=1e6 + every * n, ask=Ask(series=kept))
    return found


def test_a_host_without_errors_is_well() -> None:
    assert [f.status for f in polled(node(), node(dimm0=(0, 0)))] == [Status.OK]


def test_an_uncorrected_error_names_its_module() -> None:
    (found,) = polled(node(0, 1, dimm0=(0, 0), dimm3=(0, 1)))
    assert (found.code, found.severity) == ("host.memory-uncorrected", Severity.REBOOT)
    assert found.reason == "1 uncorrected error(s) in host memory CPU_SrcID#0_DIMM3 since the last boot"


def test_an_error_no_module_owns_is_counted_by_its_controller() -> None:
    found = polled(node(0, 2, dimm0=(0, 0)))
    assert [(f.code, f.count) for f in found] == [("host.memory-uncorrected", 2)]


def test_corrected_errors_are_judged_by_rate_and_only_watched() -> None:
    (found,) = polled(node(1_000, dimm0=(1_000, 0)), node(1_060, dimm0=(1_060, 0)))
    assert (found.code, found.severity) == ("host.memory-corrected", Severity.MONITOR)
    assert "60 corrected errors within 24 h" in found.reason


def test_many_old_corrected_errors_and_a_slow_trickle_are_well() -> None:
    assert [f.status for f in polled(node(5_000), node(5_000))] == [Status.OK]
    assert [f.status for f in polled(*[node(40 * n) for n in range(4)], every=90_000.0)] == [Status.OK]


def test_a_virtual_machine_has_nothing_to_see() -> None:
    x86 = SpokenHost(files={"/proc/cpuinfo": "flags : fpu hypervisor lahf_lm"})
    arm = SpokenHost(files={"/sys/class/dmi/id/sys_vendor": "Amazon EC2"})
    assert [f.status for host in (x86, arm) for f in polled(host)] == [Status.OK, Status.OK]


def test_bare_metal_without_the_counters_is_unknown() -> None:
    metal = SpokenHost(files={"/proc/cpuinfo": "flags : fpu lahf_lm"})
    (found,) = polled(metal)
    assert (found.status, found.severity) == (Status.UNKNOWN, Severity.NONE)
    assert "EDAC" in found.reason


@given(st.dictionaries(st.sampled_from(["mc0/ce", "mc0/ue", "mc0/dimm1/ce", "mc0/dimm1/ue", "mc0/dimm1/label"]),
                       st.none() | st.text(max_size=24)))  # fmt: skip
@settings(max_examples=EXAMPLES, deadline=None)
def test_fuzz_any_counter_file_is_judged(files: dict[str, str | None]) -> None:
    reading = Reading(Completed(0, "", ""), files=files)
    host_memory.samples(reading)
    assert all(sign.reason for sign in host_memory.judge(reading, Ask()))
