"""The kernel log: every prefix and variant is read, only the kernel is believed, a flood costs a counter."""

from __future__ import annotations

import json

import pytest

from sickbay.checks.kernel_hits import Hit
from sickbay.checks.kernel_scan import Scan, scan
from tests.checks import samples

BODY = "NVRM: Xid (PCI:0000:3B:00): 79, pid=1122, name=python3, GPU has fallen off the bus."
KERNEL_PREFIXES = (
    "",
    "kernel: ",
    "[12345.678901] ",
    "[  416.096724] ",
    "[123] ",
    "[Fri Mar  3 04:44:24 2023] ",
    "[ 130.456250] [ T1946] ",
    "[ 1419.919580][ T9955] ",
    "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ",
    "6,3964,206764307,-;",
    "<6>[    2.608284] ",
    "Nov 22 14:56:44 host-1 kernel: [94555.573305] ",
    "Aug 10 15:36:05 host.example.com kernel: ",
    "2026-10-04T14:16:55+03:00 host kernel: ",
    "2026-10-04T14:16:55.123456Z host kernel: ",
    "Okt 06 17:59:27 balrog kernel: ",
    "août 25 18:29:11 fujitsu kernel: ",
    "11月 16 18:29:11 fujitsu kernel: ",
    "Fri 2024-05-03 10:00:00 UTC host kernel: ",
    "1700000000.123456 host kernel: ",
    "[    1.234567] host kernel: ",
    "<4>1 2024-05-01T10:00:00Z host kernel - - - ",
    "[gpu-health] [WARN] GPU-98645400-65f3-e471-005b-a66c1508c08d: XID: ",
)
FOREIGN_PREFIXES = (
    "Nov 22 14:56:44 host python[331]: ",
    "Nov 22 14:56:44 host dcgm-exporter: ",
    "2026-10-04T14:16:55+03:00 host containerd[8]: kernel: ",
    "<30>[   13.002969] systemd[1]: ",
    "<12>[   13.002969] ",
    "30,3964,206764307,-;",
    "[   13.002969] systemd[1]: ",
    "daemon:info  : 2025-01-21T04:41:44,283302+00:00 ",
    "the log says ",
)


def hits(*lines: str) -> list[Hit]:
    return list(scan([("\n".join(lines) + "\n").encode()]).hits.values())


def codes(*lines: str) -> list[tuple[str, str]]:
    return [(hit.named.code, hit.named.device) for hit in hits(*lines)]


@pytest.mark.parametrize("prefix", KERNEL_PREFIXES)
def test_an_xid_is_read_behind_every_kernel_prefix(prefix: str) -> None:
    assert codes(prefix + BODY) == [("xid.79", "0000:3b:00")]


@pytest.mark.parametrize("prefix", FOREIGN_PREFIXES)
def test_a_program_that_quotes_an_xid_is_counted_and_not_believed(prefix: str) -> None:
    found = scan([(prefix + BODY + "\n").encode()])
    assert not found.hits
    assert found.foreign == 1


@pytest.mark.parametrize(
    ("line", "code", "device"),
    [
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "xid.14", "0000:03:00"),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE", "xid.94", "0000:01:00"),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 95, pid=7, Uncontained", "xid.95", "0000:01:00"),
        ("NVRM: Xid (PCI:0018:01:00): 79 Recommended", "xid.79", "0018:01:00"),
        ("XID event received: code=48 pci=0000:75:00 msg=pid=3, name=python3", "xid.48", "0000:75:00"),
        ("nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM", "sxid.20034", "0000:06:00"),
        ("NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.", "kernel.fallen-off-bus", "0000:91:00"),
        ("NVRM: GPU 0000:39:00.0: RmInitAdapter failed! (0x62:0x40:2393)", "kernel.rm-init-failed", "0000:39:00"),
        ("NVRM: rm_init_adapter failed for device bearing minor number 0", "kernel.rm-init-failed", ""),
        (
            "nvme 0000:34:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer",
            "kernel.pcie-aer-fatal",
            "0000:34:00",
        ),
        (
            "pcieport 0000:00:07.1: AER: Multiple Uncorrected (Non-Fatal) error message received from 0000:08:00.0",
            "kernel.pcie-aer-nonfatal",
            "0000:08:00",
        ),
        ("pcieport 0000:00:1b.0: DPC: containment event, status:0x1f01", "kernel.pcie-dpc", "0000:00:1b"),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0", "kernel.edac-uncorrected", ""),
        ("mce: [Hardware Error]: Machine check: Processor context corrupt", "kernel.mce-fatal", ""),
        ("{1}[Hardware Error]: event severity: recoverable", "kernel.mce-uncorrected", ""),
        ("Kernel panic - not syncing: Fatal exception", "kernel.panic", ""),
        ("mlx5_core 0000:d2:00.0: poll_health:174: device's health compromised", "kernel.nic-fatal", "0000:d2:00"),
    ],
)
def test_each_kind_of_line_gets_its_code_and_device(line: str, code: str, device: str) -> None:
    assert codes(f"[   50.947816] {line}") == [(code, device)]


@pytest.mark.parametrize(
    "line",
    [
        "nvidia-nvswitch2: open (major=510)",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 2023",
        "NVRM: Persistence mode is deprecated and will be removed in a future release.",
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
        "pcieport 0000:00:03.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Receiver ID)",
        "pcieport 0000:00:03.0: AER: Multiple Corrected error message received from 0000:00:03.0",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0",
        "EDAC MC: Ver: 3.0.0",
        "[Hardware Error]: CPU:0 (19:61:2) MC21_STATUS[Over|CE|MiscV|AddrV|-]: 0xdc20",
        "RAS: Correctable Errors collector initialized.",
        "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636",
        "NVRM: Xid : 32, pid=2280636",
        "NVRM: Xid (PCI:0000:65:00)",
        "NVRM: Xid PCI:0000:01:00: 43, pid=1814139",
        "INFO: task kworker/3:1:77 blocked for more than 120 seconds.",
    ],
)
def test_benign_and_malformed_lines_do_not_trigger(line: str) -> None:
    assert codes(f"[   50.947816] {line}") == []


def test_a_loss_without_an_xid_is_one_printk_of_three_lines() -> None:
    lines = (
        "[  9.1] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "                NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "                NVRM: fallen off the bus and is not responding to commands.",
    )
    assert codes(*lines) == [("kernel.fallen-off-bus", "0000:b3:00")]
    assert "0000:b3:00.0" in hits(*lines)[0].evidence[0]


def test_the_journals_json_is_read_and_only_its_kernel_records() -> None:
    record = {"_TRANSPORT": "kernel", "MESSAGE": BODY, "_HOSTNAME": "n7", "__REALTIME_TIMESTAMP": "1700000000000000"}
    found = scan([(json.dumps(record) + "\n").encode()])
    assert [hit.named.code for hit in found.hits.values()] == ["xid.79"]
    assert found.node == "n7"
    spoof = record | {"_TRANSPORT": "stdout", "SYSLOG_IDENTIFIER": "kernel"}
    assert not scan([(json.dumps(spoof) + "\n").encode()]).hits


def test_a_task_hung_in_the_driver_is_known_by_its_stack_even_across_blocks() -> None:
    first = b"[ 1.0] INFO: task python3:77 blocked for more than 120 seconds.\n[ 1.0] Call Trace:\n"
    second = b"[ 1.0]  os_acquire_mutex+0x3c/0x60 [nvidia]\n"
    for blocks in ([first + second], [first, second]):
        assert [h.named.code for h in scan(blocks).hits.values()] == ["kernel.hung-task-nvidia"]
    assert not scan([first, b"[ 1.0]  nfs_wait_bit+0x1/0x2 [nfs]\n"]).hits


def test_lines_of_one_event_coalesce_and_a_pause_begins_another() -> None:
    def line(at: float, gpu: str = "3b") -> str:
        return f"[{at:.6f}] NVRM: Xid (PCI:0000:{gpu}:00): 13, pid=7, Graphics Exception"

    (one,) = hits(line(10.0), line(11.0), line(15.5))
    assert (one.count, one.events) == (3, 1)
    (two,) = hits(line(10.0), line(11.0), line(16.5))
    assert (two.count, two.events) == (3, 2)
    assert len(hits(line(10.0), line(10.0, "5e"))) == 2


@pytest.mark.parametrize(
    "prefix",
    [
        "Nov 22 14:{m:02d}:{s:02d} node kernel: [{t}.{u:06d}] ",
        "[{t}.{u:06d}] ",
        "[Fri Mar  3 04:{m:02d}:{s:02d} 2023] ",
        "kern  :warn  : 2025-01-21T04:{m:02d}:{s:02d},{u:06d}+00:00 ",
        "6,{n},{t}{u:06d},-;",
    ],
)
def test_a_flood_costs_one_counter_and_is_counted_exactly(prefix: str) -> None:
    lines = [
        prefix.format(m=i // 60_000, s=i // 1000 % 60, t=94000 + i // 1000, u=i % 1000 * 1000, n=i)
        + f"NVRM: Xid (PCI:0000:{(3, 4, 5)[i % 3]:02x}:00): 13, pid={i}, Graphics Exception: ESR 0x{i:x}"
        for i in range(30_000)
    ]
    found = scan(_chunks("\n".join(lines).encode() + b"\n", 65_536))
    assert {h.named.device: (h.count, h.events) for h in found.hits.values()} == {
        f"0000:{gpu:02x}:00": (10_000, 1) for gpu in (3, 4, 5)
    }
    assert found.lines == 30_000


def test_a_flood_does_not_hide_what_happens_in_its_middle() -> None:
    flood = [f"[94.{i:06d}] NVRM: Xid (PCI:0000:03:00): 13, pid={i}, Graphics" for i in range(5000)]
    flood.insert(2500, "[94.002500] NVRM: Xid (PCI:0000:04:00): 79, GPU has fallen off the bus.")
    flood.insert(3500, "[94.003500] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up")
    flood.insert(4000, "Nov 22 14:56:44 host python[3]: NVRM: Xid (PCI:0000:03:00): 13, pid=1, quoted")
    found = scan(["\n".join(flood).encode()])
    counts = {h.named.code: h.count for h in found.hits.values()}
    assert counts == {"xid.13": 5000, "xid.79": 1, "sxid.20034": 1}
    assert found.foreign == 1


def test_a_program_cannot_swell_a_flood_by_quoting_it() -> None:
    real = [f"2026-10-04T14:16:55.{i:06d}Z h kernel: NVRM: Xid (PCI:0000:03:00): 13, pid={i}" for i in range(50)]
    fake = [f"2026-10-04T14:16:55.{i:06d}Z h app[1]: NVRM: Xid (PCI:0000:03:00): 13, pid={i}" for i in range(50)]
    found = scan(["\n".join(x for pair in zip(real, fake, strict=True) for x in pair).encode()])
    assert [h.count for h in found.hits.values()] == [50]
    assert found.foreign == 50


def test_codes_whose_text_matters_are_kept_apart() -> None:
    base = "[1.0] NVRM: Xid (PCI:0000:03:00): 154, GPU recovery action changed from 0x0 (None) to "
    assert [h.named.traits["hex"] for h in hits(base + "0x1 (PF FLR)", base + "0x2 (OS Reboot)")] == ["1", "2"]


def test_line_numbers_are_those_of_the_file_whatever_the_blocks() -> None:
    text = "\n".join(["filler"] * 4999 + ["[1.0] " + BODY] + ["filler"] * 10 + ["[2.0] Kernel panic - not syncing: x"])
    for size in (97, 4096, 1 << 20):
        rows: list[tuple[int, str]] = []
        scan(_chunks(text.encode(), size), lambda line, hit, rows=rows: rows.append((line, hit.named.code)))  # type: ignore[misc]
        assert rows == [(5000, "xid.79"), (5011, "kernel.panic")]


def test_memory_stays_bounded_on_one_endless_line_and_on_invented_devices() -> None:
    found = Scan()
    for _ in range(64):
        found.feed(b"x" * 100_000)
    for i in range(6000):
        found.feed(f"NVRM: Xid (PCI:{i:04x}:00:00): 79, lost\n".encode())
    found.finish()
    assert len(found.hits) == 4096
    assert found.dropped > 1000
    assert len(found._carry) <= 1 << 16


def test_the_recorded_lines_get_their_code_and_device_and_the_benign_get_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    right = wrong = quiet = loud = 0
    for row in samples.rows("kernel.jsonl"):
        found = codes(row["line"])
        if row["kind"] in ("xid", "sxid"):
            good = [code for code, _ in found] == [f"{row['kind']}.{row['xid']}"] and found[0][1] != ""
            right, wrong = right + good, wrong + (not good)
        elif row["kind"] in ("benign", "nvrm_context", "malformed", "peermem"):
            quiet, loud = quiet + (not found), loud + bool(found)
    with capsys.disabled():
        print(f"\nkernel.jsonl: {right} xid/sxid lines right, {wrong} wrong; {quiet} benign quiet, {loud} loud")
    assert (wrong, loud) == (0, 0)
    assert right >= 286
    assert quiet >= 280


def _chunks(text: bytes, size: int) -> list[bytes]:
    return [text[i : i + size] for i in range(0, len(text), size)]
