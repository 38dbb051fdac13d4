"""gpu-processes: is anything still computing on GPUs that should be free? `nvidia-smi --query-compute-apps`.

`checks/run` calls it on a Host. Only where the GPUs must be empty is a process a finding: before and after a job, and
before a test that wants the node for itself. At any other time it is what the node is for, and nothing is asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from sickbay.checks.kernel_lines import device
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote, unusable
from sickbay.checks.smi_csv import Row, is_address, table
from sickbay.model import Status
from sickbay.ports import Completed, Host

TIMEOUT_S = 30.0
EMPTY = frozenset({"prolog", "epilog", "quarantine", "intensive"})
FIELDS = ("gpu_bus_id", "pid", "used_gpu_memory", "process_name")


def collect(host: Host, ask: Ask) -> Reading:
    if ask.suite not in EMPTY:
        return Reading(Completed(0, "", ""))
    query = f"--query-compute-apps={','.join(FIELDS)}"
    return Reading(host.run(("nvidia-smi", query, "--format=csv"), TIMEOUT_S))


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if ask.suite not in EMPTY:
        return []
    if blind := unusable(reading.done, "nvidia-smi"):
        return [blind]
    if reading.done.code not in (0, None) and not reading.done.stdout.strip():
        said = "nvidia-smi would not list the processes on the GPUs"
        return [Sign("tool.failed", said, evidence=quote(reading.done.stderr), status=Status.UNKNOWN)]
    return list(_signs([dict.fromkeys(FIELDS, "") | row for row in table(reading.done.stdout)]))


def _signs(rows: list[Row]) -> Iterator[Sign]:
    """One finding a GPU, whatever number of processes is on it."""
    by_gpu: dict[str, list[Row]] = {}
    for row in rows:
        if row["pid"].isdecimal() and is_address(row["gpu_bus_id"]):
            by_gpu.setdefault(device(row["gpu_bus_id"]), []).append(row)
    for pci, left in by_gpu.items():
        first = left[0]
        name = first["process_name"] or "a process we may not see"
        said = f"{len(left)} process(es) left on {pci}, such as {name[:60]} (pid {first['pid'][:10]})"
        lines = [f"{pci}: pid {row['pid'][:10]} {row['process_name']} {row['used_gpu_memory']}" for row in left]
        yield Sign("smi.leftover-process", said, pci, quote(*lines), count=len(left))


CHECK = Check("gpu-processes", None, collect, judge)
