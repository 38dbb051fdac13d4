"""pcie: does each GPU's PCIe link have all its lanes, its speed under load, and no new errors on the kernel's counters?

`checks/run` calls it on a Host. Idle GPUs slow their link down to save power, so speed counts only under load, and
lanes only out of deep idle. When all GPUs of a node are equally narrow, the machine is built so. Error counters (AER,
in /sys) tell of the past: only their growth between two polls is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator

from sickbay.checks.kernel_lines import device
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote, unusable
from sickbay.checks.smi_csv import Row, figure, is_address, table
from sickbay.model import Status
from sickbay.ports import Host

TIMEOUT_S = 30.0
FIELDS = (
    "pci.bus_id", "serial", "pstate", "utilization.gpu", "pcie.link.width.current", "pcie.link.width.max",
    "pcie.link.gen.current", "pcie.link.gen.max",
)  # fmt: skip
AER = ("fatal", "nonfatal")
MOST_GPUS = 64


def collect(host: Host, ask: Ask) -> Reading:
    done = host.run(("nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv"), TIMEOUT_S)
    paths = [_path(_pci(row), kind) for row in _gpus(done.stdout) for kind in AER]
    return Reading(done, files={path: host.read(path) for path in paths})


def _gpus(text: str) -> list[Row]:
    """A field that the driver does not know is simply not there."""
    rows = [dict.fromkeys(FIELDS, "") | row for row in table(text)]
    return [row for row in rows if is_address(row["pci.bus_id"])][:MOST_GPUS]


def _pci(row: Row) -> str:
    return device(row["pci.bus_id"])


def _path(pci: str, kind: str) -> str:
    return f"/sys/bus/pci/devices/{pci}.0/aer_dev_{kind}"


def samples(reading: Reading) -> dict[str, float]:
    found = {}
    for row in _gpus(reading.done.stdout):
        for kind in AER:
            total = _total(reading.files.get(_path(_pci(row), kind)))
            if total is not None:
                found[f"pcie/{_pci(row)}/{kind}"] = total
    return found


def _total(text: str | None) -> float | None:
    """aer_dev_fatal ends with "TOTAL_ERR_FATAL 0"; None where the kernel or the platform keeps no such file."""
    for line in (text or "")[:4096].splitlines():
        name, _, value = line.partition(" ")
        if name.startswith("TOTAL_ERR_"):
            return figure(value.strip())
    return None


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if blind := unusable(reading.done, "nvidia-smi"):
        return [blind]
    rows = _gpus(reading.done.stdout)
    if not rows:
        said = "nvidia-smi did not say how the GPUs are connected"
        shown = quote(*f"{reading.done.stdout}\n{reading.done.stderr}".splitlines())
        return [Sign("tool.unreadable", said, evidence=shown, status=Status.UNKNOWN)]
    return [*_widths(rows), *(s for row in rows for s in (*_speed(row, ask), *_errors(row, ask)))]


def _widths(rows: list[Row]) -> Iterator[Sign]:
    narrow = [row for row in rows if _awake(row) and _below(row, "width")]
    built_so = len(rows) > 1 and len(narrow) == len(rows) and len({r["pcie.link.width.current"] for r in rows}) == 1
    for row in [] if built_so else narrow:
        now, most = row["pcie.link.width.current"], row["pcie.link.width.max"]
        yield _sign(row, "pcie.width", f"{_pci(row)} has {now} of {most} PCIe lanes", f"width {now} of {most}")


def _awake(row: Row) -> bool:
    """P5 and above are sleep; a link may fold its lanes there."""
    return row["pstate"] not in ("P5", "P8", "P12", "P15")


def _below(row: Row, what: str) -> bool:
    now, most = figure(row[f"pcie.link.{what}.current"]), figure(row[f"pcie.link.{what}.max"])
    return now is not None and most is not None and 0 < now < most


def _speed(row: Row, ask: Ask) -> Iterator[Sign]:
    load = figure(row["utilization.gpu"])
    if load is not None and load >= ask.limits["pcie-load-percent"] and _below(row, "gen"):
        now, most = row["pcie.link.gen.current"], row["pcie.link.gen.max"]
        said = f"the PCIe link of {_pci(row)} runs at generation {now} of {most} under load"
        yield _sign(row, "pcie.speed", said, f"generation {now} of {most} at {load:.0f} % load")


def _errors(row: Row, ask: Ask) -> Iterator[Sign]:
    for kind in AER:
        points = ask.series.points.get(f"pcie/{_pci(row)}/{kind}", [])[-2:]
        grown = points[-1][1] - points[0][1] if len(points) == 2 else 0.0
        if grown > 0:  # a counter that starts anew has not grown: the device was reset
            said = f"{grown:.0f} new {kind} PCIe error(s) on {_pci(row)} since the last look"
            yield _sign(row, f"pcie.aer-{kind}", said, f"aer_dev_{kind}: {points[-1][1]:.0f}")


def _sign(row: Row, code: str, said: str, shown: str) -> Sign:
    return Sign(code, said, _pci(row), quote(f"GPU {_pci(row)}: {shown}"), part=row["serial"])


CHECK = Check("pcie", None, collect, judge, samples)
