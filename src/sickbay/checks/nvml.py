"""The GPUs through NVML (package nvidia-ml-py, extra "nvml"): the same fields that `nvidia-smi -q` prints, as JSON.

`checks/nvidia_smi` calls `ask`. NVML runs in a process of its own (`COMMAND`), started and timed like any
tool: a driver that hangs then hangs that process and not the agent, and no handle is held between polls,
which would block a GPU reset. It must never judge, and never answer for a node on which some GPU does not answer:
then it says nothing, and nvidia-smi is asked, which names the lost one.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from ctypes import byref
from functools import partial
from importlib.util import find_spec
from typing import Any

from sickbay.checks.smi_text import MOST_GPUS, NVML_HEAD
from sickbay.ports import Completed, Host

# Not `-m`: the package imports this module first, and the interpreter would warn about that on every poll.
COMMAND = (sys.executable, "-c", "import sys; from sickbay.checks.nvml import main; sys.exit(main())")


def installed() -> bool:
    return find_spec("pynvml") is not None


def ask(host: Host, timeout_s: float) -> Completed | None:
    """What NVML says of this host's GPUs; None: not there, no answer, or not all GPUs answer."""
    if not installed():
        return None
    done = host.run(COMMAND, timeout_s)
    return done if done.code == 0 and done.stdout.startswith(NVML_HEAD) else None


def read(nvml: Any) -> str:
    """All GPUs as one JSON text. `nvml` is the module pynvml; what it raises for the whole node is passed on."""
    nvml.nvmlInit()
    try:
        count = min(int(nvml.nvmlDeviceGetCount()), MOST_GPUS)
        gpus = [_gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
        told = {"driver": _text(nvml.nvmlSystemGetDriverVersion()), "attached": count, "gpus": gpus}
        return NVML_HEAD + json.dumps(told)[1:]
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, handle: Any) -> dict[str, Any]:
    fields = {name: value for name, value in _fields(nvml, handle) if value}
    return {"bus_id": _text(nvml.nvmlDeviceGetPciInfo(handle).busId), "fields": fields}


def _fields(nvml: Any, handle: Any) -> Iterator[tuple[str, str]]:
    tried = partial(_tried, nvml)
    yield "product_name", tried(lambda: _text(nvml.nvmlDeviceGetName(handle)))
    yield "serial_number", tried(lambda: _text(nvml.nvmlDeviceGetSerial(handle)))
    yield "gpu_uuid", tried(lambda: _text(nvml.nvmlDeviceGetUUID(handle)))
    yield "persistence_mode", tried(lambda: _enabled(nvml.nvmlDeviceGetPersistenceMode(handle)))
    yield "mig_mode/current", tried(lambda: _enabled(nvml.nvmlDeviceGetMigMode(handle)[0]))
    yield "ecc_mode/current", tried(lambda: _enabled(nvml.nvmlDeviceGetEccMode(handle)[0]))
    yield "gpu_recovery_action", tried(lambda: _recovery(nvml, handle))
    yield "inforom_checksum_validation", tried(lambda: _inforom(nvml, handle))
    yield from _memory(nvml, handle)
    yield from _clocks(nvml, handle)
    yield from _fabric(nvml, handle)


def _memory(nvml: Any, handle: Any) -> Iterator[tuple[str, str]]:
    tried = partial(_tried, nvml)
    sram = dict(_sram(nvml, handle))
    yield from sram.items()
    yield from _counters(nvml, handle, "dram", nvml.NVML_MEMORY_LOCATION_DRAM)
    if not sram:  # not both: their sum would count each error twice
        yield from _counters(nvml, handle, "sram", nvml.NVML_MEMORY_LOCATION_SRAM)
    rows = tried(lambda: nvml.nvmlDeviceGetRemappedRows(handle)) or ("",) * 4
    names = ("correctable_error", "uncorrectable_error", "pending", "remapping_failure_occurred")
    for name, value in zip(names, rows, strict=False):
        yield f"remapped_rows/{name}", str(value) if name.endswith("error") else _yes(value)
    repair = tried(lambda: nvml.nvmlDeviceGetRepairStatus(handle)) or ("", "")
    yield "ecc_errors/channel_repair_pending", _yes(repair[0])
    yield "ecc_errors/tpc_repair_pending", _yes(repair[1])
    yield "ecc_errors/unrepairable_memory", tried(lambda: _yes(nvml.nvmlDeviceGetUnrepairableMemoryFlag_v1(handle)))
    yield (
        "retired_pages/pending_page_blacklist",
        tried(lambda: _yes(nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))),
    )
    for cause, name in enumerate(("single_bit_ecc", "double_bit_ecc")):  # NVML_PAGE_RETIREMENT_CAUSE_*
        pages = tried(partial(nvml.nvmlDeviceGetRetiredPages, handle, cause))
        yield f"retired_pages/{name}", "" if pages == "" else str(len(pages))


def _counters(nvml: Any, handle: Any, where: str, place: int) -> Iterator[tuple[str, str]]:
    for when, counter in (("volatile", nvml.NVML_VOLATILE_ECC), ("aggregate", nvml.NVML_AGGREGATE_ECC)):
        for error, kind in enumerate(("correctable", "uncorrectable")):  # NVML_MEMORY_ERROR_TYPE_*
            count = partial(nvml.nvmlDeviceGetMemoryErrorCounter, handle, error, counter, place)
            yield f"ecc_errors/{when}/{where}_{kind}", str(_tried(nvml, count))


def _sram(nvml: Any, handle: Any) -> Iterator[tuple[str, str]]:
    """Hopper and newer, R550 and newer: by kind of error, with the vendor's own verdict on their number."""

    def look() -> Any:
        status = nvml.c_nvmlEccSramErrorStatus_v1_t()
        nvml.nvmlDeviceGetSramEccErrorStatus(handle, byref(status))
        return status

    status = _tried(nvml, look)
    if status == "":
        return
    for when in ("volatile", "aggregate"):
        yield f"ecc_errors/{when}/sram_correctable", str(getattr(status, f"{when}Cor"))
        yield f"ecc_errors/{when}/sram_uncorrectable_parity", str(getattr(status, f"{when}UncParity"))
        yield f"ecc_errors/{when}/sram_uncorrectable_sec_ded", str(getattr(status, f"{when}UncSecDed"))
    yield "ecc_errors/aggregate/sram_threshold_exceeded", _yes(status.bThresholdExceeded)


_REASONS = (  # nvmlClocksEventReason*
    (0x08, "hw_slowdown"), (0x40, "hw_thermal_slowdown"), (0x80, "hw_power_brake_slowdown"),
)  # fmt: skip


def _clocks(nvml: Any, handle: Any) -> Iterator[tuple[str, str]]:
    """The bit mask kept its values when "throttle" became "event"; old libraries have the old name only."""
    look = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    look = look or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
    mask = _tried(nvml, lambda: look(handle))
    if mask == "":
        return
    for bit, name in _REASONS:
        yield f"clocks_event_reasons/{name}", "Active" if mask & bit else "Not Active"


_STATES = ("Not Supported", "Not Started", "In Progress", "Completed")  # NVML_GPU_FABRIC_STATE_*


def _fabric(nvml: Any, handle: Any) -> Iterator[tuple[str, str]]:
    def look() -> Any:
        info = nvml.c_nvmlGpuFabricInfo_v2_t()
        nvml.nvmlDeviceGetGpuFabricInfoV(handle, byref(info))
        return info

    info = _tried(nvml, look)
    if info == "" or not 0 < info.state < len(_STATES):
        return
    yield "fabric/state", _STATES[info.state]
    if info.state == 3:  # before that the status means nothing
        yield "fabric/status", "Success" if info.status == nvml.NVML_SUCCESS else f"error {info.status}"


# NVML_GPU_RECOVERY_ACTION_*, in the words that nvidia-smi has for them (R610 has two more than R590).
_ACTIONS = (
    "None", "Reset", "Reboot", "Drain P2P", "Drain and Reset", "Recover IMEX Domain", "Bus Reset", "System Reboot",
)  # fmt: skip


def _recovery(nvml: Any, handle: Any) -> str:
    (found,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if found.nvmlReturn != nvml.NVML_SUCCESS or not 0 <= found.value.uiVal < len(_ACTIONS):
        return ""
    return _ACTIONS[found.value.uiVal]


def _inforom(nvml: Any, handle: Any) -> str:
    try:
        nvml.nvmlDeviceValidateInforom(handle)
    except nvml.NVMLError as refused:
        return "invalid" if refused.value == nvml.NVML_ERROR_CORRUPTED_INFOROM else ""
    return "valid"


def _tried(nvml: Any, look: Callable[[], Any]) -> Any:
    """ "": this GPU, driver or library does not have it. A GPU that is lost is not one without serial number."""
    try:
        return look()
    except nvml.NVMLError as refused:
        if refused.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_UNKNOWN, nvml.NVML_ERROR_RESET_REQUIRED):
            raise
        return ""
    except AttributeError:  # a release of nvidia-ml-py that does not know the function
        return ""


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _enabled(value: int) -> str:
    return "Enabled" if value else "Disabled"


def _yes(value: int | str) -> str:
    return "" if value == "" else "Yes" if value else "No"


def main() -> int:
    """Print the table, or say in one line why there is none."""
    try:
        print(read(importlib.import_module("pynvml")))
    except Exception as refused:  # whatever a vendor's library throws, it is one line and an exit code
        print(f"NVML: {type(refused).__name__}: {refused}", file=sys.stderr)
        return 1
    return 0
