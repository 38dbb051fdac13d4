"""Simulated hosts print what the real tools print: every fault is seen by the real checks as itself."""

from __future__ import annotations

import json
from itertools import count

import pytest

from sickbay.checks import dcgm_diag, nvidia_smi
from sickbay.checks.smi_text import parse
from sickbay.model import Status
from sickbay.sim import judge
from sickbay.sim.faults import kinds
from sickbay.sim.host import SimHost
from sickbay.sim.world import World

CYCLE = 330.0

# kind -> codes the agent must end up with (all of them)
SEEN = {
    "gpu_lost_79": {"xid.79", "smi.gpu-lost"},
    "gpu_lost_silent": {"smi.gpu-lost"},
    "ecc_uncontained_95": {"xid.95", "smi.recovery-action-reset"},
    "ecc_dbe_48": {"xid.48", "xid.63", "xid.94", "xid.154", "smi.remap-pending"},
    "ecc_contained_94": {"xid.94", "xid.63", "smi.remap-pending"},
    "row_remap_pending_63": {"xid.63", "smi.remap-pending"},
    "row_remap_failed_64": {"xid.48", "xid.64", "smi.remap-failed"},
    "sram": {"xid.172", "xid.95", "smi.sram-threshold"},
    "gsp_119": {"xid.119", "smi.recovery-action-reboot"},
    "nvlink_74": {"xid.74", "smi.recovery-action-reset"},
    "nvlink_down_after_boot": {"xid.74"},
    "degrading": {"xid.92", "smi.slowdown-hw"},
    "hot_row": {"smi.slowdown-hw"},
    "driver_hung": {"smi.driver-hung", "kernel.hung-task-nvidia"},
    "dcgm_dead": {"dcgm.dead"},
    "app_fault_13_31": {"xid.13", "xid.31", "xid.43"},
    "nic_down": {"kernel.nic-fatal"},
    "flood": {"xid.94", "smi.ecc-volatile"},
}


def world() -> World:
    return World(11, 2, silent_failure=0.0, reboot_hangs=0.0)


def host(made: World, major: int = 4) -> SimHost:
    return SimHost(made, made.nodes["node-0000"], major)


@pytest.mark.parametrize("kind", sorted(SEEN))
def test_the_real_checks_recognise_each_fault_in_what_the_host_prints(kind: str) -> None:
    made = world()
    made.strike(kind, "node-0000", 3, then_chance=0.0)
    made.run_for(CYCLE)
    node = made.nodes["node-0000"]
    codes = {f.code for f in node.findings.values()}
    assert codes >= SEEN[kind]
    gpu = node.gpus[3]
    for finding in node.findings.values():
        if finding.place.device and kind != "nic_down":  # a card of its own, not a GPU
            assert finding.place.device == gpu.pci
            assert finding.part == gpu.serial


def test_every_hardware_fault_that_shows_itself_is_in_the_table_above() -> None:
    silent = {"job_hang", "host_crash", "power_loss", "boot_hung"}
    shown = {k.name for k in kinds().values() if k.scope != "job" and not k.hides}
    assert shown - silent == set(SEEN)


def test_a_healthy_host_is_found_healthy_by_every_check() -> None:
    made = world()
    names = ("nvidia-smi", "dcgm-l2", "dcgm-l4", "kernel-log")
    found = judge.examine(host(made), names, at=made.now, expected_gpus=8, sequence=count(1))
    assert [(f.check, f.status) for f in found] == [(name, Status.OK) for name in names]


def test_a_lost_gpu_is_named_first_and_the_others_follow() -> None:
    made = world()
    made.strike("gpu_lost_79", "node-0000", 0)
    text = host(made).run(("nvidia-smi", "-q"), 10).stdout
    lost = (
        "Unable to determine the device handle for GPU0000:53:00.0: GPU is lost.  Reboot the system to recover this GPU"
    )
    assert text.splitlines()[0] == lost
    assert len(parse(text).cards) == 7
    listing = host(made).run(("nvidia-smi", "-L"), 10).stdout.splitlines()
    assert listing[1].startswith("GPU 1: NVIDIA H100")
    rows = host(made).run(("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"), 10).stdout.splitlines()
    assert len(rows) == 8
    assert rows[1].startswith("1, GPU-")


def test_text_and_xml_say_the_same() -> None:
    made = world()
    made.strike("row_remap_pending_63", "node-0000", 5)
    made.strike("ecc_uncontained_95", "node-0000", 6)
    as_text = nvidia_smi.signs(host(made).run(("nvidia-smi", "-q"), 10).stdout, 8)
    as_xml = nvidia_smi.signs(host(made).run(("nvidia-smi", "-q", "-x"), 10).stdout, 8)
    assert {(s.code, s.device, s.part) for s in as_text} == {(s.code, s.device, s.part) for s in as_xml}
    assert len(as_text) >= 3


def test_a_hung_driver_never_answers() -> None:
    made = world()
    made.strike("driver_hung", "node-0000")
    assert host(made).run(("nvidia-smi", "-q"), 10).timed_out


def test_a_dead_host_engine_says_so_in_its_own_words_and_exit_code() -> None:
    made = world()
    made.strike("dcgm_dead", "node-0000")
    done = host(made).run(("dcgmi", "diag", "-r", "2", "-j"), 10)
    assert done.code == 235
    assert "unable to establish a connection" in done.stdout


@pytest.mark.parametrize("major", [3, 4])
def test_both_generations_of_dcgm_report_a_failed_row_remap(major: int) -> None:
    made = world()
    made.strike("row_remap_failed_64", "node-0000", 2)
    done = host(made, major).run(("dcgmi", "diag", "-r", "2", "-j"), 10)
    assert done.code == 226
    assert ("DCGM Diagnostic" in json.loads(done.stdout)) is (major == 4)
    assert [s.code for s in dcgm_diag.signs(done.stdout)] == ["dcgm.DCGM_FR_ROW_REMAP_FAILURE"]


def test_kernel_records_come_once_per_cursor_and_from_the_start_after_a_boot() -> None:
    made = world()
    here = host(made)
    first, cursor = here.kernel_lines("")
    assert first
    assert here.kernel_lines(cursor) == ([], cursor)
    made.strike("row_remap_pending_63", "node-0000", 0)
    lines, cursor = here.kernel_lines(cursor)
    assert len(lines) == 1
    assert lines[0].split(";")[0].startswith("4,")
    made.treatments.boot(made.nodes["node-0000"])
    assert len(here.kernel_lines(cursor)[0]) == len(first)


def test_dmesg_prints_ring_time() -> None:
    made = world()
    made.run_for(100)
    made.strike("row_remap_pending_63", "node-0000", 0)
    assert "[  100.000000] NVRM: Xid (PCI:0000:53:00): 63" in host(made).run(("dmesg",), 10).stdout


def test_a_tool_that_is_not_installed_is_missing_and_a_dead_host_answers_nothing() -> None:
    made = world()
    assert host(made).run(("ipmitool", "sel"), 10).missing
    made.strike("power_loss", "node-0000")
    assert host(made).run(("nvidia-smi", "-q"), 10).timed_out
    assert host(made).read("/proc/uptime") is None


def test_a_hidden_fault_is_seen_by_the_deep_diagnostic_only_sometimes() -> None:
    made = world()
    ailment = made.strike("load_only", "node-0000", 0, recall=0.5)
    assert ailment is not None
    seen = 0
    for _ in range(200):
        made.run_for(60)
        seen += made.illness.seen_by_diag(ailment, 4)
        assert not made.illness.seen_by_diag(ailment, 2)
    assert 60 < seen < 140


def test_ids_are_ordered_within_a_boot_and_sick_answers_are_repeated_a_few_cycles_only() -> None:
    made = world()
    made.strike("gpu_lost_silent", "node-0000", 0)
    node = made.nodes["node-0000"]
    ids = set()
    for _ in range(20):
        made.run_for(300)
        ids.add(next(f.id for f in node.findings.values() if f.code == "smi.gpu-lost"))
    assert len(ids) == 4
    assert all(i.startswith(node.boot_id + "/") for i in ids)
