"""What nvidia-smi prints about a simulated host, mistakes included: -q, -q -x, -L, --query-gpu, and by way of
`smi_links` topo -m, nvlink -s, nvlink -e and --query-compute-apps.

Formats follow driver R580/R590 captures of H100 hosts; a GPU that is lost prints the line the real tool prints, and the
blocks of the surviving GPUs follow. SimHost calls it; it reads the truth and never changes it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sickbay.ports import Completed
from sickbay.sim import smi_links
from sickbay.sim.hardware import SimGpu, SimNode
from sickbay.sim.smi_links import LINKS, MODEL

WIDTH = 51


def run(node: SimNode, argv: Sequence[str], now: float) -> Completed:
    """One call of nvidia-smi. Hung drivers leave the caller in D state."""
    if node.hung:
        return Completed(None, "", "", timed_out=True, stuck=True)
    words = list(argv)
    if words[:1] == ["nvlink"]:
        return Completed(0, _nvlink(node, "-e" in words or "--errorcounters" in words), "")
    if words[:2] == ["topo", "-m"]:
        return _with_losses(node, smi_links.topology(node))
    apps = next((w for w in words if w.startswith("--query-compute-apps=")), "")
    if apps:
        header = not any("noheader" in w for w in words)
        return _with_losses(node, smi_links.compute_apps(node, apps.partition("=")[2].split(","), header))
    if "-L" in words or "--list-gpus" in words:
        return _with_losses(node, "".join(smi_links.list_row(gpu) for gpu in node.gpus if not gpu.lost))
    query = next((w for w in words if w.startswith("--query-gpu=")), "")
    if query:
        return _with_losses(node, _csv(node, query.partition("=")[2].split(","), words, now))
    if "-q" in words or "--query" in words:
        xml = "-x" in words or "--xml-format" in words
        return _with_losses(node, _xml(node, now) if xml else _text(node, now))
    return _with_losses(node, _table(node, now))


def _with_losses(node: SimNode, body: str) -> Completed:
    """The real tool names the lost ones first, goes on with the others, and exits 0 or 6: never rely on it."""
    lost = [gpu for gpu in node.gpus if gpu.lost]
    if lost and len(lost) == len(node.gpus):
        return Completed(6, "No devices were found\n", "")
    said = "".join(f"Unable to determine the device handle for {_handle(gpu)}: {_LOST}\n" for gpu in lost)
    return Completed(0, said + body, "")


_LOST = "GPU is lost.  Reboot the system to recover this GPU"


def _handle(gpu: SimGpu) -> str:
    return f"GPU{gpu.pci.upper()}.0"


def _bus_id(gpu: SimGpu) -> str:
    return f"0000{gpu.pci.upper()}.0"


def _stamp(now: float) -> str:
    return time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime(now))


def _yes(value: Any) -> str:
    return "Yes" if value else "No"


def _reading(gpu: SimGpu) -> dict[str, str]:
    """Every value that the formats below share, from the truth."""
    hot = bool(gpu.sign("hot"))
    recovery = gpu.sign("recovery") or "None"
    return {
        "name": MODEL,
        "serial": gpu.serial,
        "uuid": gpu.uuid,
        "bus_id": _bus_id(gpu),
        "index": str(gpu.slot),
        "recovery": str(recovery),
        "temp": "88" if hot else "41",
        "slowdown": "Active" if gpu.sign("slowdown") else "Not Active",
        "dram_corr": str(gpu.sign("dram_correctable") or 0),
        "dram_unc": str(gpu.sign("dram_uncorrectable") or 0),
        "sram_unc": str(gpu.sign("sram_uncorrectable") or 0),
        "sram_threshold": _yes(gpu.sign("sram_threshold")),
        "remap_corr": str(gpu.sign("remap_correctable") or 0),
        "remap_unc": str(gpu.sign("remap_uncorrectable") or 0),
        "remap_pending": _yes(gpu.sign("remap_pending")),
        "remap_failed": _yes(gpu.sign("remap_failed")),
        "fabric": "In Progress" if (gpu.sign("links_down") or 0) >= LINKS else "Completed",
    }


def _text(node: SimNode, now: float) -> str:
    shown = [gpu for gpu in node.gpus if not gpu.lost]
    head = [
        "",
        "==============NVSMI LOG==============",
        "",
        _row(0, "Timestamp", _stamp(now)),
        _row(0, "Driver Version", node.driver),
        _row(0, "CUDA Version", "13.0"),
        "",
        _row(0, "Attached GPUs", str(len(node.gpus))),
    ]
    blocks = [_block(gpu, node.driver) for gpu in shown]
    return "\n".join([*head, *blocks]) + "\n"


def _row(indent: int, name: str, value: str) -> str:
    return f"{' ' * indent}{name}".ljust(WIDTH + 4) + f": {value}"


# indent, name, value (or a key of _reading in braces); "" as value opens a section
_LAYOUT: tuple[tuple[int, str, str | None], ...] = (
    (4, "Product Name", "{name}"),
    (4, "Product Brand", "NVIDIA"),
    (4, "Product Architecture", "Hopper"),
    (4, "Persistence Mode", "Enabled"),
    (4, "MIG Mode", None),
    (8, "Current", "Disabled"),
    (8, "Pending", "Disabled"),
    (4, "Serial Number", "{serial}"),
    (4, "GPU UUID", "{uuid}"),
    (4, "Minor Number", "{index}"),
    (4, "VBIOS Version", "96.00.A5.00.01"),
    (4, "GPU Recovery Action", "{recovery}"),
    (4, "GSP Firmware Version", "{driver}"),
    (4, "PCI", None),
    (8, "Bus Id", "{bus_id}"),
    (8, "GPU Link Info", None),
    (12, "PCIe Generation", None),
    (16, "Max", "5"),
    (16, "Current", "5"),
    (12, "Link Width", None),
    (16, "Max", "16x"),
    (16, "Current", "16x"),
    (8, "Replays Since Reset", "0"),
    (4, "Performance State", "P0"),
    (4, "Clocks Event Reasons", None),
    (8, "Idle", "Not Active"),
    (8, "SW Power Cap", "Not Active"),
    (8, "HW Slowdown", "{slowdown}"),
    (12, "HW Thermal Slowdown", "{slowdown}"),
    (12, "HW Power Brake Slowdown", "Not Active"),
    (8, "SW Thermal Slowdown", "Not Active"),
    (4, "FB Memory Usage", None),
    (8, "Total", "81559 MiB"),
    (8, "Used", "0 MiB"),
    (4, "Compute Mode", "Default"),
    (4, "ECC Mode", None),
    (8, "Current", "Enabled"),
    (8, "Pending", "Enabled"),
    (4, "ECC Errors", None),
    (8, "Volatile", None),
    (12, "SRAM Correctable", "0"),
    (12, "SRAM Uncorrectable Parity", "0"),
    (12, "SRAM Uncorrectable SEC-DED", "{sram_unc}"),
    (12, "DRAM Correctable", "{dram_corr}"),
    (12, "DRAM Uncorrectable", "{dram_unc}"),
    (8, "Aggregate", None),
    (12, "SRAM Correctable", "0"),
    (12, "SRAM Uncorrectable Parity", "0"),
    (12, "SRAM Uncorrectable SEC-DED", "{sram_unc}"),
    (12, "DRAM Correctable", "{dram_corr}"),
    (12, "DRAM Uncorrectable", "{dram_unc}"),
    (12, "SRAM Threshold Exceeded", "{sram_threshold}"),
    (4, "Retired Pages", None),
    (8, "Single Bit ECC", "N/A"),
    (8, "Double Bit ECC", "N/A"),
    (8, "Pending Page Blacklist", "N/A"),
    (4, "Remapped Rows", None),
    (8, "Correctable Error", "{remap_corr}"),
    (8, "Uncorrectable Error", "{remap_unc}"),
    (8, "Pending", "{remap_pending}"),
    (8, "Remapping Failure Occurred", "{remap_failed}"),
    (8, "Bank Remap Availability Histogram", None),
    (12, "Max", "2560 bank(s)"),
    (12, "None", "0 bank(s)"),
    (4, "Temperature", None),
    (8, "GPU Current Temp", "{temp} C"),
    (8, "GPU T.Limit Temp", "46 C"),
    (4, "GPU Power Readings", None),
    (8, "Average Power Draw", "69.85 W"),
    (8, "Current Power Limit", "700.00 W"),
    (4, "Fabric", None),
    (8, "State", "{fabric}"),
    (8, "Status", "Success"),
    (4, "Processes", "None"),
)
_TEMPLATE = "\n".join(
    f"{' ' * indent}{name}" if value is None else _row(indent, name, value) for indent, name, value in _LAYOUT
)


def _block(gpu: SimGpu, driver: str) -> str:
    reading = _reading(gpu)
    return f"GPU {reading['bus_id']}\n" + _TEMPLATE.format(driver=driver, **reading)


_XML_GPU = """\t<gpu id="{bus_id}">
\t\t<product_name>{name}</product_name>
\t\t<product_brand>NVIDIA</product_brand>
\t\t<product_architecture>Hopper</product_architecture>
\t\t<persistence_mode>Enabled</persistence_mode>
\t\t<mig_mode>
\t\t\t<current_mig>Disabled</current_mig>
\t\t\t<pending_mig>Disabled</pending_mig>
\t\t</mig_mode>
\t\t<serial>{serial}</serial>
\t\t<uuid>{uuid}</uuid>
\t\t<minor_number>{index}</minor_number>
\t\t<gpu_recovery_action>{recovery}</gpu_recovery_action>
\t\t<pci>
\t\t\t<pci_bus_id>{bus_id}</pci_bus_id>
\t\t\t<replay_counter>0</replay_counter>
\t\t</pci>
\t\t<clocks_event_reasons>
\t\t\t<clocks_event_reason_hw_slowdown>{slowdown}</clocks_event_reason_hw_slowdown>
\t\t\t<clocks_event_reason_hw_thermal_slowdown>{slowdown}</clocks_event_reason_hw_thermal_slowdown>
\t\t</clocks_event_reasons>
\t\t<ecc_mode>
\t\t\t<current_ecc>Enabled</current_ecc>
\t\t\t<pending_ecc>Enabled</pending_ecc>
\t\t</ecc_mode>
\t\t<ecc_errors>
\t\t\t<volatile>
\t\t\t\t<sram_correctable>0</sram_correctable>
\t\t\t\t<sram_uncorrectable_parity>0</sram_uncorrectable_parity>
\t\t\t\t<sram_uncorrectable_secded>{sram_unc}</sram_uncorrectable_secded>
\t\t\t\t<dram_correctable>{dram_corr}</dram_correctable>
\t\t\t\t<dram_uncorrectable>{dram_unc}</dram_uncorrectable>
\t\t\t</volatile>
\t\t\t<aggregate>
\t\t\t\t<sram_correctable>0</sram_correctable>
\t\t\t\t<sram_uncorrectable_parity>0</sram_uncorrectable_parity>
\t\t\t\t<sram_uncorrectable_secded>{sram_unc}</sram_uncorrectable_secded>
\t\t\t\t<dram_correctable>{dram_corr}</dram_correctable>
\t\t\t\t<dram_uncorrectable>{dram_unc}</dram_uncorrectable>
\t\t\t\t<sram_threshold_exceeded>{sram_threshold}</sram_threshold_exceeded>
\t\t\t</aggregate>
\t\t</ecc_errors>
\t\t<remapped_rows>
\t\t\t<remapped_row_corr>{remap_corr}</remapped_row_corr>
\t\t\t<remapped_row_unc>{remap_unc}</remapped_row_unc>
\t\t\t<remapped_row_pending>{remap_pending}</remapped_row_pending>
\t\t\t<remapped_row_failure>{remap_failed}</remapped_row_failure>
\t\t</remapped_rows>
\t\t<temperature>
\t\t\t<gpu_temp>{temp} C</gpu_temp>
\t\t</temperature>
\t\t<fabric>
\t\t\t<state>{fabric}</state>
\t\t\t<status>Success</status>
\t\t</fabric>
\t</gpu>
"""


def _xml(node: SimNode, now: float) -> str:
    shown = "".join(_XML_GPU.format(**_reading(gpu)) for gpu in node.gpus if not gpu.lost)
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>\n'
        f"\t<timestamp>{_stamp(now)}</timestamp>\n\t<driver_version>{node.driver}</driver_version>\n"
        f"\t<cuda_version>13.0</cuda_version>\n\t<attached_gpus>{len(node.gpus)}</attached_gpus>\n{shown}"
        "</nvidia_smi_log>\n"
    )


# field of --query-gpu -> key of _reading, with its unit
_FIELDS = {
    "index": "index",
    "name": "name",
    "serial": "serial",
    "gpu_serial": "serial",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "pci.bus_id": "bus_id",
    "gpu_bus_id": "bus_id",
    "gpu_recovery_action": "recovery",
    "temperature.gpu": "temp",
    "ecc.errors.corrected.volatile.dram": "dram_corr",
    "ecc.errors.corrected.volatile.total": "dram_corr",
    "ecc.errors.uncorrected.volatile.dram": "dram_unc",
    "ecc.errors.uncorrected.volatile.sram": "sram_unc",
    "ecc.errors.uncorrected.volatile.total": "dram_unc",
    "remapped_rows.correctable": "remap_corr",
    "remapped_rows.uncorrectable": "remap_unc",
    "remapped_rows.pending": "remap_pending",
    "remapped_rows.failure": "remap_failed",
    "clocks_event_reasons.hw_slowdown": "slowdown",
    "clocks_event_reasons.hw_thermal_slowdown": "slowdown",
    "fabric.state": "fabric",
}


def _csv(node: SimNode, fields: list[str], words: Sequence[str], now: float) -> str:
    form = next((w for w in words if w.startswith("--format=")), "--format=csv")
    rows = [] if "noheader" in form else [", ".join(fields)]
    for gpu in node.gpus:
        if not gpu.lost:
            reading = _reading(gpu) | {
                "timestamp": _stamp(now),
                "driver_version": node.driver,
                "count": str(len(node.gpus)),
                "pstate": "P0",
                "utilization.gpu": "97 %" if node.job else "0 %",
                "pcie.link.width.current": "16",
                "pcie.link.width.max": "16",
                "pcie.link.gen.current": "5",
                "pcie.link.gen.max": "5",
            }
            rows.append(", ".join(reading.get(_FIELDS.get(f.strip(), f.strip()), "[N/A]") for f in fields))
    return "\n".join(rows) + "\n"


def _nvlink(node: SimNode, errors: bool) -> str:
    rows = []
    for gpu in node.gpus:
        if gpu.lost:
            rows.append(f"Unable to determine the device handle for {_handle(gpu)}: {_LOST}")
            continue
        rows += [smi_links.list_row(gpu).rstrip(), *(smi_links.errors(gpu) if errors else smi_links.status(gpu))]
    return "\n".join(rows) + "\n"


def _table(node: SimNode, now: float) -> str:
    line = "+-----------------------------------------------------------------------------------------+"
    rows = [
        _stamp(now),
        line,
        f"| NVIDIA-SMI {node.driver:<22} Driver Version: {node.driver:<14} CUDA Version: 13.0     |",
        line,
    ]
    for gpu in node.gpus:
        if not gpu.lost:
            reading = _reading(gpu)
            rows.append(f"|   {gpu.slot}  {MODEL:<24} On | {reading['bus_id']} Off | {reading['dram_unc']:>20} |")
    return "\n".join([*rows, line]) + "\n"
