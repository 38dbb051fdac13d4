"""nvidia-peermem: missed only where GPUs and mlx5 adapters are, and never more than a setting."""

from __future__ import annotations

import pytest

from sickbay.checks.peermem import CHECK
from sickbay.checks.signs import Ask
from sickbay.model import Severity, Status
from tests.checks.hosts import SpokenHost
from tests.checks.network import codes, efa_host, found, looked


def mlx5_host(*modules: str) -> SpokenHost:
    host = SpokenHost(folders={"/sys/class/infiniband": ("mlx5_0", "ibp3s0"), "/sys/module": modules})
    host.files["/sys/class/infiniband/ibp3s0/device/vendor"] = "0x15b3\n"
    return host


def test_a_missing_module_is_a_setting() -> None:
    (sign,) = looked(CHECK, mlx5_host("nvidia", "mlx5_core"), Ask())
    assert (sign.code, found(sign).severity) == ("peermem.missing", Severity.MONITOR)
    assert "2 mlx5 adapters" in sign.reason


@pytest.mark.parametrize("module", ["nvidia_peermem", "nv_peer_mem"])
def test_either_module_will_do(module: str) -> None:
    assert looked(CHECK, mlx5_host("nvidia", module), Ask()) == []


def test_a_host_without_gpus_does_not_need_it() -> None:
    assert looked(CHECK, mlx5_host("mlx5_core"), Ask()) == []


def test_a_host_with_efa_only_is_not_judged() -> None:
    (sign,) = looked(CHECK, efa_host(), Ask())
    assert (sign.code, sign.status) == ("", Status.OK)


def test_proc_modules_does_where_sysfs_has_no_list() -> None:
    host = mlx5_host()
    host.folders.pop("/sys/module")
    assert [sign.status for sign in looked(CHECK, host, Ask())] == [Status.UNKNOWN]
    host.files["/proc/modules"] = "nvidia 56000 12 - Live 0x0\nmlx5_core 1 0 - Live 0x0\n"
    assert codes(looked(CHECK, host, Ask())) == ["peermem.missing"]
