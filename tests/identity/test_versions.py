"""Versions: read cheaply, left out where nobody says, and never by opening a GPU."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.identity.versions import versions
from tests.checks.hosts import SpokenHost, printed
from tests.fuzzing import EXAMPLES

INFORMATION = (
    "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 361\nGPU UUID: \t GPU-0f\n"
    "Video BIOS: \t 96.00.74.00.{n}\nBus Type: \t PCIe\nGPU Firmware: \t 550.54.15\n"
)


def node() -> SpokenHost:
    files = {
        "/sys/module/nvidia/version": "550.54.15\n",
        "/proc/sys/kernel/osrelease": "6.1.112-124.190.amzn2023.x86_64\n",
        "/usr/local/cuda/version.json": '{"cuda": {"name": "CUDA SDK", "version": "12.4.20240301"}}',
        "/opt/amazon/efa_installed_packages": "# EFA installer version: 1.34.0\n# Debug packages installed: no\n",
        "/sys/module/efa/version": "2.10.0g\n",
        "/usr/include/nccl.h": "#define NCCL_MAJOR 2\n#define NCCL_MINOR 21\n#define NCCL_PATCH 5\n",
        "/etc/os-release": 'NAME="Amazon Linux"\nPRETTY_NAME="Amazon Linux 2023.6"\n',
    }
    for n in (1, 2, 3):
        files[f"/proc/driver/nvidia/gpus/0000:0{n}:00.0/information"] = INFORMATION.format(n="01" if n < 3 else "04")
    folders: dict[str, tuple[str, ...]] = {"/proc/driver/nvidia/gpus": ("0000:01:00.0", "0000:02:00.0", "0000:03:00.0")}
    return SpokenHost(
        {"nv-fabricmanager": printed("Fabric Manager version is : 550.54.15\n")}, files=files, folders=folders
    )


def test_what_can_be_read_is_read() -> None:
    assert versions(node()) == {
        "driver": "550.54.15", "vbios": "96.00.74.00.01,96.00.74.00.04", "gsp": "550.54.15",
        "kernel": "6.1.112-124.190.amzn2023.x86_64", "os": "Amazon Linux 2023.6", "cuda": "12.4.20240301",
        "efa": "1.34.0", "efa-driver": "2.10.0g", "nccl": "2.21.5", "fabricmanager": "550.54.15",
    }  # fmt: skip


def test_the_driver_is_read_from_its_other_file_too() -> None:
    for line in (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder@U16)\n",
    ):
        found = versions(SpokenHost(files={"/proc/driver/nvidia/version": line}))
        assert found["driver"] in ("535.183.01", "570.86.15")


def test_a_bare_node_has_no_versions_and_no_errors() -> None:
    assert versions(SpokenHost()) == {}


def test_no_tool_that_opens_a_gpu_is_run() -> None:
    host = node()
    versions(host)
    assert host.asked == ["nv-fabricmanager --version"]


@given(st.text(max_size=300))
@settings(max_examples=EXAMPLES, deadline=None)
def test_fuzz_any_text_in_any_file_is_a_short_version_or_none(text: str) -> None:
    host = node()
    for path in host.files:
        host.files[path] = text
    host.answers["nv-fabricmanager"] = printed(text)
    assert all(len(value) <= 64 for value in versions(host).values())
