"""NVML: the same fields as `nvidia-smi -q`, so that one judge serves both; and silence where not all GPUs answer."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from sickbay.checks import nvidia_smi, nvml
from sickbay.checks.signs import Ask
from sickbay.checks.smi_text import NVML_HEAD, parse
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed
from tests.checks.test_nvidia_smi import text

RUN = " ".join(nvml.COMMAND)


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


class _SramStatus(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in (
        "aggregateUncParity", "aggregateUncSecDed", "aggregateCor", "volatileUncParity", "volatileUncSecDed",
        "volatileCor",
    )] + [("bThresholdExceeded", ctypes.c_uint)]  # fmt: skip


class _FabricInfo(ctypes.Structure):
    _fields_ = [("status", ctypes.c_uint), ("state", ctypes.c_ubyte)]


@dataclass
class FakeNvml:
    """The functions of nvidia-ml-py (13.615) by their real names, results and error numbers, for GPUs we make up."""

    gpus: list[dict[str, Any]]
    calls: list[str] = field(default_factory=list)

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_CORRUPTED_INFOROM = 14
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_RESET_REQUIRED = 16
    NVML_ERROR_UNKNOWN = 999
    NVML_VOLATILE_ECC = 0
    NVML_AGGREGATE_ECC = 1
    NVML_MEMORY_LOCATION_DRAM = 2
    NVML_MEMORY_LOCATION_SRAM = 7
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230
    c_nvmlEccSramErrorStatus_v1_t = _SramStatus
    c_nvmlGpuFabricInfo_v2_t = _FabricInfo

    def nvmlInit(self) -> None:
        self.calls.append("init")

    def nvmlShutdown(self) -> None:
        self.calls.append("shutdown")

    def nvmlSystemGetDriverVersion(self) -> str:
        return "590.48.01"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        if self.gpus[index].get("lost"):
            raise NVMLError(self.NVML_ERROR_GPU_IS_LOST)
        return self.gpus[index] | {"index": index}

    def nvmlDeviceGetPciInfo(self, gpu: dict[str, Any]) -> Any:
        return type("PciInfo", (), {"busId": f"00000000:{16 + gpu['index']:02X}:00.0".encode()})

    def nvmlDeviceGetName(self, gpu: dict[str, Any]) -> str:
        return "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetSerial(self, gpu: dict[str, Any]) -> str:
        return f"165372{16 + gpu['index']:02X}"

    def nvmlDeviceGetUUID(self, gpu: dict[str, Any]) -> bytes:
        return f"GPU-{16 + gpu['index']:02X}".encode()

    def nvmlDeviceGetPersistenceMode(self, gpu: dict[str, Any]) -> int:
        return int(gpu.get("persistence", 1))

    def nvmlDeviceGetMigMode(self, gpu: dict[str, Any]) -> list[int]:
        return [0, 0]

    def nvmlDeviceGetEccMode(self, gpu: dict[str, Any]) -> list[int]:
        return [1, 1]

    def nvmlDeviceGetFieldValues(self, gpu: dict[str, Any], fields: list[int]) -> Any:
        assert fields == [230]
        value = type("Value", (), {"uiVal": gpu.get("recovery", 0)})
        return [type("Field", (), {"nvmlReturn": 0, "value": value})]

    def nvmlDeviceValidateInforom(self, gpu: dict[str, Any]) -> None:
        if gpu.get("inforom"):
            raise NVMLError(self.NVML_ERROR_CORRUPTED_INFOROM)

    def nvmlDeviceGetMemoryErrorCounter(self, gpu: dict[str, Any], kind: int, when: int, place: int) -> int:
        return int(gpu.get("dbe", 0)) if (kind, when, place) == (1, 0, 2) else 0

    def nvmlDeviceGetSramEccErrorStatus(self, gpu: dict[str, Any], status: Any) -> int:
        status._obj.bThresholdExceeded = gpu.get("sram", 0)
        return 0

    def nvmlDeviceGetRemappedRows(self, gpu: dict[str, Any]) -> tuple[int, int, int, int]:
        return (0, 1, gpu.get("pending", 0), gpu.get("failed", 0))

    def nvmlDeviceGetRepairStatus(self, gpu: dict[str, Any]) -> list[int]:
        return [gpu.get("channel", 0), gpu.get("tpc", 0)]

    def nvmlDeviceGetUnrepairableMemoryFlag_v1(self, gpu: dict[str, Any]) -> int:
        return int(gpu.get("unrepairable", 0))

    def nvmlDeviceGetRetiredPagesPendingStatus(self, gpu: dict[str, Any]) -> int:
        raise NVMLError(self.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetRetiredPages(self, gpu: dict[str, Any], cause: int) -> list[int]:
        raise NVMLError(self.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: dict[str, Any]) -> int:
        return int(gpu.get("reasons", 0x1))

    def nvmlDeviceGetGpuFabricInfoV(self, gpu: dict[str, Any], info: Any) -> int:
        info._obj.state, info._obj.status = gpu.get("fabric", 3), 0
        return 0


CASES: list[tuple[dict[str, int], dict[str, str], str]] = [
    ({}, {}, ""),
    ({"pending": 1}, {"pending": "Yes"}, "smi.remap-pending"),
    ({"failed": 1}, {"failed": "Yes"}, "smi.remap-failed"),
    ({"sram": 1}, {"sram": "Yes"}, "smi.sram-threshold"),
    ({"dbe": 3}, {"dbe": "3"}, "smi.ecc-volatile"),
    ({"reasons": 0x48}, {"slow": "Active"}, "smi.slowdown-hw"),
    ({"reasons": 0x07}, {}, ""),  # idle, application clocks, software power cap
    ({"recovery": 1}, {"recovery": "Reset"}, "smi.recovery-action-reset"),
    ({"recovery": 2}, {"recovery": "Reboot"}, "smi.recovery-action-reboot"),
    ({"recovery": 4}, {"recovery": "Drain and Reset"}, "smi.recovery-action-drain"),
    ({"persistence": 0}, {"persistence": "Disabled"}, "smi.persistence-off"),
]


def read(*gpus: dict[str, Any]) -> str:
    return nvml.read(FakeNvml(list(gpus)))


@pytest.mark.parametrize(("truth", "shown", "code"), CASES)
def test_nvml_and_the_command_line_are_judged_alike(truth: dict[str, int], shown: dict[str, str], code: str) -> None:
    by_nvml = nvidia_smi.signs(read({}, truth), 2)
    by_text = nvidia_smi.signs(text({}, shown), 2)
    assert [sign.code for sign in by_nvml] == ([code] if code else [])
    assert [(s.code, s.device, s.part, s.reason, s.traits) for s in by_nvml] == [
        (s.code, s.device, s.part, s.reason, s.traits) for s in by_text
    ]


@pytest.mark.parametrize(
    ("truth", "code"),
    [
        ({"channel": 1}, "smi.channel-repair-pending"),
        ({"tpc": 1}, "smi.tpc-repair-pending"),
        ({"unrepairable": 1}, "smi.unrepairable-memory"),
        ({"inforom": 1}, "smi.inforom-corrupt"),
    ],
)
def test_repairs_and_the_inforom_are_seen_through_nvml(truth: dict[str, int], code: str) -> None:
    assert [sign.code for sign in nvidia_smi.signs(read(truth), 1)] == [code]


def test_the_fabric_state_and_the_inventory_come_along() -> None:
    told = read({}, {"fabric": 2})
    assert [card.get("fabric/state") for card in parse(told).cards] == ["Completed", "In Progress"]
    assert [(gpu.index, gpu.pci, gpu.serial, gpu.uuid) for gpu in nvidia_smi.inventory(told)] == [
        (0, "0000:10:00", "16537210", "GPU-10"),
        (1, "0000:11:00", "16537211", "GPU-11"),
    ]


def test_no_handle_is_held_whatever_happens() -> None:
    """A held handle blocks a GPU reset."""
    cases: list[list[dict[str, Any]]] = [[{}], [{}, {"lost": True}]]
    for gpus in cases:
        fake = FakeNvml(gpus)
        try:
            nvml.read(fake)
        except NVMLError:
            assert "lost" in gpus[-1]
        assert fake.calls == ["init", "shutdown"]


def test_a_library_that_does_not_know_a_function_leaves_its_field_out() -> None:
    class Old(FakeNvml):
        def __getattribute__(self, name: str) -> Any:
            if name in ("nvmlDeviceGetRepairStatus", "c_nvmlEccSramErrorStatus_v1_t", "c_nvmlGpuFabricInfo_v2_t"):
                raise AttributeError(name)
            return super().__getattribute__(name)

    (card,) = parse(nvml.read(Old([{"pending": 1}]))).cards
    assert card.get("remapped_rows/pending") == "Yes"
    assert card.get("ecc_errors/channel_repair_pending", "fabric/state") == ""
    assert card.get("ecc_errors/volatile/sram_uncorrectable") == "0"


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "installed", lambda: True)


@pytest.mark.usefixtures("there")
def test_where_nvml_answers_nvidia_smi_is_not_run() -> None:
    host = SpokenHost({RUN: printed(read({}, {"pending": 1}))})
    signs = nvidia_smi.judge(nvidia_smi.collect(host, Ask()), Ask(expected_gpus=2))
    assert [(sign.code, sign.device) for sign in signs] == [("smi.remap-pending", "0000:11:00")]
    assert host.asked == [RUN]


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("answer", [MISSING, TIMED_OUT, printed("", 1, "NVML: GPU is lost"), printed("nonsense")])
def test_where_nvml_does_not_answer_for_all_gpus_nvidia_smi_is_asked(answer: Any) -> None:
    """A lost GPU has an address in nvidia-smi's words and none in NVML's error."""
    lost = "Unable to determine the device handle for GPU0000:25:00.0: GPU is lost.  Reboot the system\n"
    host = SpokenHost({RUN: answer, "nvidia-smi": printed(lost + text({}))})
    signs = nvidia_smi.judge(nvidia_smi.collect(host, Ask()), Ask(expected_gpus=2))
    assert [(sign.code, sign.device) for sign in signs] == [("smi.gpu-lost", "0000:25:00")]


def test_without_the_library_only_nvidia_smi_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "installed", lambda: False)
    host = SpokenHost({"nvidia-smi": printed(text({}))})
    nvidia_smi.collect(host, Ask())
    assert host.asked == ["nvidia-smi -q"]


def test_the_program_says_in_one_line_why_it_has_no_answer() -> None:
    """There is no driver here, so the real program fails as it would on a broken node: no traceback, exit code 1."""
    done = subprocess.run(nvml.COMMAND, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:
        assert done.stdout.startswith(NVML_HEAD)
        return
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("NVML: ")


@pytest.mark.parametrize(
    "change",
    [
        lambda told: {**told, "gpus": None},
        lambda told: {**told, "attached": "many"},
        lambda told: {**told, "gpus": [{"fields": {}}]},
        lambda told: {**told, "gpus": [1, 2]},
    ],
)
def test_a_table_that_is_no_table_is_unknown(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    broken = NVML_HEAD + json.dumps(change(json.loads(read({}))))[1:].replace('"sickbay-nvml": 1,', "")
    assert [sign.code for sign in nvidia_smi.signs(broken, 8)] == ["tool.unreadable"]
    assert sys.executable in nvml.COMMAND
