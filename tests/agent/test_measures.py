"""Host metrics from /proc and nvidia-smi."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sickbay.agent.measures import GPU_FIELDS, Meter
from tests.checks.hosts import SpokenHost, printed
from tests.fuzzing import EXAMPLES

STAT = "cpu  {user} 0 100 {idle} 50 0 0 0 0 0\ncpu0 1 2 3\n"
NET = (
    "Inter-|   Receive\n face |bytes\n"
    "  eth0: {rx} 1 0 0 0 0 0 0 {tx} 1 0 0 0 0 0 0\n    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n"
)
DISKS = " 259 0 nvme0n1 10 0 {read} 0 5 0 {written} 0 0 0 0\n 259 1 nvme0n1p1 10 0 9 0 5 0 9 0 0 0 0\n"
SMI = f"nvidia-smi --query-gpu={GPU_FIELDS} --format=csv,noheader,nounits"


def a_host(**files: str) -> SpokenHost:
    named = {"stat": "/proc/stat", "net": "/proc/net/dev", "disks": "/proc/diskstats", "mem": "/proc/meminfo"}
    return SpokenHost(files={named.get(name, name): text for name, text in files.items()})


def figures(meter: Meter, now: float) -> dict[str, float]:
    return {f"{one.name} {one.label}".strip(): one.value for one in meter.measure(now, 0.0).all}


def test_shares_and_rates_are_differences() -> None:
    host = a_host(
        stat=STAT.format(user=1_000, idle=9_000), net=NET.format(rx=1_000, tx=0), disks=DISKS.format(read=0, written=0)
    )
    meter = Meter(host)
    assert figures(meter, 0.0) == {}
    host.files["/proc/stat"] = STAT.format(user=1_025, idle=9_075)
    host.files["/proc/net/dev"] = NET.format(rx=7_000, tx=600)
    host.files["/proc/diskstats"] = DISKS.format(read=60, written=120)
    found = figures(meter, 60.0)
    assert (found["cpu_usage_active"], found["cpu_usage_idle"]) == (25.0, 75.0)
    assert (found["net_bytes_recv interface=eth0"], found["net_bytes_sent interface=eth0"]) == (100.0, 10.0)
    assert found["diskio_write_bytes device=nvme0n1"] == 1_024.0
    assert not any("lo" in name.split("=")[-1:] or "nvme0n1p1" in name for name in found)


def test_memory_is_what_programs_could_still_have() -> None:
    found = figures(Meter(a_host(mem="MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 250 kB\n")), 0.0)
    assert (found["mem_used_percent"], found["mem_available"]) == (75.0, 256_000.0)


def test_disk_space_is_that_of_local_file_systems_each_device_once() -> None:
    table = "/dev/nvme0n1p1 / ext4 rw 0 0\n/dev/nvme0n1p1 /var/lib/kubelet ext4 rw 0 0\nfsx:/x /fsx lustre rw 0 0\n"
    host = a_host(**{"/proc/1/mounts": table})
    host.answers["stat -f -c"] = printed("4096 1000 300 250 /\n")
    found = figures(Meter(host), 0.0)
    assert host.asked == ["stat -f -c %S %b %f %a %n /"]
    assert (found["disk_used_percent path=/"], found["disk_total path=/"]) == (73.68, 4_096_000.0)


def test_gpu_use_comes_from_the_tool_and_na_is_left_out() -> None:
    host = a_host(**{"/proc/driver/nvidia/version": "NVRM"})
    host.answers[SMI] = printed("0, 97, 70000, 81559\n1, [N/A], 0, 81559\n")
    found = figures(Meter(host), 0.0)
    assert found["nvidia_smi_utilization_gpu index=0"] == 97.0
    assert "nvidia_smi_utilization_gpu index=1" not in found
    assert found["nvidia_smi_memory_used index=1"] == 0.0


def test_without_a_driver_its_tool_is_not_started_each_minute() -> None:
    host = a_host()
    Meter(host).measure(0.0, 0.0)
    assert host.asked == []


def test_a_counter_that_starts_anew_is_no_rate() -> None:
    host = a_host(net=NET.format(rx=1_000, tx=1))
    meter = Meter(host)
    meter.measure(0.0, 0.0)
    host.files["/proc/net/dev"] = NET.format(rx=5, tx=2)
    assert "net_bytes_recv interface=eth0" not in figures(meter, 60.0)


@settings(max_examples=EXAMPLES)
@given(st.text(max_size=60), st.sampled_from(["stat", "net", "disks", "mem"]))
@example("0\t²", "mem")  # a digit, and no number
def test_fuzz_no_text_of_proc_raises(text: str, name: str) -> None:
    host = a_host(**{name: text})
    meter = Meter(host)
    meter.measure(0.0, 0.0)
    meter.measure(60.0, 0.0)
