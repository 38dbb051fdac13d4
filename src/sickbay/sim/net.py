"""What the network tools print about a simulated host: lspci, fi_info, fi_pingpong, ibv_devices, rdma, all_reduce_perf.

And the folders and files of /sys/class/infiniband behind them. A p5 host: four EFA adapters a GPU. Node signs it shows:
efa_missing (how many are gone), efa_loopback (how many fail their test), efa_drops (packets dropped a second),
nccl_busbw (GB/s instead of the usual), nccl_wrong (wrong values). SimHost calls it; it reads the truth and never
changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sickbay.ports import Completed
from sickbay.sim.hardware import SimNode

PER_GPU = 4
BUSBW = 452.0
ROOT = "/sys/class/infiniband"
MODULES = ("efa", "gdrdrv", "ib_core", "ib_uverbs", "nvidia", "nvidia_uvm")
COUNTERS = (
    "impaired_remote_conn_events", "rdma_read_wr_err", "rdma_write_wr_err", "retrans_pkts", "retrans_timeout_events",
    "rx_drops", "send_wrs", "tx_bytes", "tx_pkts", "unresponsive_remote_events",
)  # fmt: skip
_SENT = {
    "tx_bytes": 8_192.0,
    "tx_pkts": 2.0,
    "send_wrs": 1.0,
}  # a second, and as much for each loopback test
_MISSING = Completed(None, "", "command not found", missing=True)
TOOLS = frozenset({"lspci", "fi_info", "fi_pingpong", "ibv_devices", "rdma", "all_reduce_perf"})


def _worst(node: SimNode, name: str) -> float:
    return max((float(a.signs[name]) for a in node.ailments if a.signs.get(name)), default=0.0)


def _buses(node: SimNode) -> list[int]:
    """PCI buses of the adapters that are there; the last ones go first."""
    whole = node.expected * PER_GPU
    return [0x4F + 2 * n for n in range(max(whole - int(_worst(node, "efa_missing")), 0))]


def names_of(node: SimNode) -> tuple[str, ...]:
    return tuple(f"rdmap{bus}s0" for bus in _buses(node))


def run(node: SimNode, argv: Sequence[str], now: float) -> Completed:
    """One call of a network tool; `env NAME=VALUE tool ...` is understood."""
    words = list(argv)
    while words and (words[0] == "env" or "=" in words[0]):
        words.pop(0)
    tool = words[0].rsplit("/", 1)[-1] if words else ""
    if tool == "lspci":
        return Completed(0, _lspci(node), "")
    if tool == "fi_info":
        return _fi_info(node)
    if tool == "fi_pingpong":
        return _pingpong(node, words)
    if tool == "ibv_devices":
        return Completed(0, _ibv_devices(node), "")
    if tool == "rdma":
        return Completed(0, _rdma(node, now), "")
    return _all_reduce(node, words) if tool == "all_reduce_perf" else _MISSING


def _lspci(node: SimNode) -> str:
    said = [f"{gpu.pci}.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)" for gpu in node.gpus]
    said += [
        f"0000:{bus:02x}:00.0 Ethernet controller: Amazon.com, Inc. Elastic Fabric Adapter (EFA)"
        for bus in _buses(node)
    ]
    return "\n".join(["0000:00:05.0 Ethernet controller: Amazon.com, Inc. Elastic Network Adapter (ENA)", *said]) + "\n"


def _fi_info(node: SimNode) -> Completed:
    """As libfabric 1.22: an rdm and a dgrm entry each."""
    kinds = (("rdm", "FI_EP_RDM"), ("dgrm", "FI_EP_DGRAM"))
    said = "".join(
        f"provider: efa\n    fabric: efa\n    domain: {name}-{short}\n    version: 122.0\n    type: {kind}\n"
        "    protocol: FI_PROTO_EFA\n"
        for name in names_of(node)
        for short, kind in kinds
    )
    return Completed(0, said, "") if said else Completed(61, "", "fi_getinfo: -61 (No data available)\n")


def _pingpong(node: SimNode, words: Sequence[str]) -> Completed:
    if "-h" in words:
        return Completed(0, "Usage:\n  fi_pingpong [OPTIONS]\n", "")
    name = next((after for word, after in pairwise(words) if word == "-d"), "").removesuffix("-rdm")
    broken = names_of(node)[: int(_worst(node, "efa_loopback"))]
    if name in broken:
        return Completed(1, "", "fi_cq_readerr: prov_err 4113: Unreachable remote\n")
    node.pinged[name] = node.pinged.get(name, 0) + 1
    head = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
    return Completed(0, head + "64      10      =10      1.2k        0.00s      1.77      36.12       0.03\n", "")


def _ibv_devices(node: SimNode) -> str:
    head = "    device          \t   node GUID\n    ------          \t----------------\n"
    return head + "".join(f"    {name:<16}\t{n + 1:016x}\n" for n, name in enumerate(names_of(node)))


def counters(node: SimNode, now: float, adapter: str) -> dict[str, int]:
    up, busy = max(now - node.boot_at, 0.0), {"rx_drops": _worst(node, "efa_drops"), **_SENT}
    told = {name: int(busy.get(name, 0.0) * up) for name in COUNTERS}
    return told | {name: told[name] + int(each) * node.pinged.get(adapter, 0) for name, each in _SENT.items()}


def _rdma(node: SimNode, now: float) -> str:
    def row(name: str) -> str:
        pairs = " ".join(f"{key} {value}" for key, value in counters(node, now, name).items())
        return f"link {name}/1 {pairs} \n"

    return "".join(map(row, names_of(node)))


def _all_reduce(node: SimNode, words: Sequence[str]) -> Completed:
    """nccl-tests 2.13, single process: the rows from 64 MiB on."""
    if any(gpu.lost for gpu in node.gpus) or node.hung:
        return Completed(2, "", f"{node.name}: Test CUDA failure common.cu:891 'no CUDA-capable device is detected'\n")
    peak, wrong = _worst(node, "nccl_busbw") or BUSBW, int(_worst(node, "nccl_wrong"))
    said = ["# nThread 1 nGpus 8 minBytes 8 maxBytes 1073741824 step: 2(factor) validation: 1", "#", "# Using devices"]
    said += [
        f"#  Rank {n:2} Group  0 Pid 4711 on {node.name} device {n:2} [0x00] NVIDIA H100" for n in range(len(node.gpus))
    ]
    for power, share in ((26, 0.80), (28, 0.93), (30, 1.0)):
        busbw, size = peak * share, 2**power
        half = f"{size / busbw / 500:9.1f} {busbw / 1.75:7.2f} {busbw:7.2f} {wrong:6}"
        said.append(f"{size:12} {size // 4:13}     float     sum      -1 {half} {half}")
    said += [
        f"# Out of bounds values : {wrong * 6} {'FAILED' if wrong else 'OK'}",
        f"# Avg bus bandwidth    : {peak * 0.9:.3f}",
        "#",
    ]
    return Completed(0, "\n".join(said) + "\n", "")


def names(node: SimNode, path: str) -> tuple[str, ...] | None:
    if path == ROOT:
        return names_of(node)
    if path == "/dev/infiniband":
        return tuple(f"uverbs{n}" for n in range(len(names_of(node))))
    if path == "/sys/module":
        return MODULES
    if path.startswith(f"{ROOT}/") and path.endswith("/ports"):
        return ("1",)
    return None


def read(node: SimNode, path: str, now: float) -> str | None:
    if not path.startswith(f"{ROOT}/"):
        return "Amazon EC2\n" if path == "/sys/class/dmi/id/sys_vendor" else None
    name, _, rest = path.removeprefix(f"{ROOT}/").partition("/")
    if name not in names_of(node):
        return None
    if rest == "device/vendor":
        return "0x1d0f\n"
    if rest.startswith("ports/1/hw_counters/"):
        value = counters(node, now, name).get(rest.rpartition("/")[2])
        return None if value is None else f"{value}\n"
    return {"ports/1/state": "4: ACTIVE\n", "ports/1/phys_state": "5: LinkUp\n"}.get(rest)
