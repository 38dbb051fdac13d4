"""Every recorded sample about the network, with the verdict its content deserves. A file nobody listed fails."""

from __future__ import annotations

import gzip
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from sickbay.catalog import load
from sickbay.checks import efa_enumeration, efa_text, infiniband
from sickbay.checks.efa_loopback import passed
from sickbay.checks.infiniband_text import printed_ports
from sickbay.checks.nccl_allreduce import CHECK as NCCL
from sickbay.checks.nccl_text import parse
from sickbay.checks.series import Series
from sickbay.checks.signs import Ask, Reading
from sickbay.model import Severity
from tests.checks import samples
from tests.checks.hosts import SpokenHost, printed
from tests.checks.network import P5, codes, found, looked

MIB64 = 64 * 2**20
SPLIT = re.compile(r"^##### ?(.*)$", re.MULTILINE)

# Files that hold one sample: how many EFA adapters lspci shows, and how many that fell off the bus.
LSPCI = {
    "gpud/lspci-vvv.gz": (0, 0),
    "gpud/lspci.nn.a10": (0, 0),
    "gpud/lspci.nn.a100": (0, 0),
    "lspci/virtualclient.linux-1.txt": (0, 0),
    "lspci/virtualclient.linux-2.txt": (0, 0),
    "lspci/virtualclient.lspci_physical_system_1.txt": (0, 0),
    "lspci/virtualclient.lspci_physical_system_mellanox.txt": (0, 0),
    "lspci/virtualclient.lspci_vm_mellanox.txt": (0, 0),
}
TREES = ("gpud/sys-class-infiniband-h100.tar.gz",)

# Files that hold several: the beginning of each one's heading -> what it must be read as.
FI_INFO = {
    "efa 2.0-era naming": ("efa_0",),
    "p4d, libfabric 1.11": ("rdmap160s27",),
    "libfabric 1.22": ("rdmap0s26",),
    "libfabric 2.1": ("rdmap47s0",),
    "MPI-prefixed output": ("rdmap197s0",),
    "no EFA, old libfabric": (),
}
PINGPONG = {
    "two g5/p5 nodes": 4,
    "EFA installer efa_test.sh": 4,
    "tcp;ofi_rxm": 2,
    "modal H100, rank-prefixed": 2,
}
# ports as (name, up); lspci excerpts stand in the same file
IBSTAT = {
    "ibstat, mixed IB/Eth": [("mlx4_0:1", False), ("mlx4_0:2", False)],
    "ibstat active+down": [(":1", True), (":2", False)],
    "ibstat H100 ConnectX-7 down": [("mlx5_0:1", False)],
    "ibv_devinfo": [("mlx5_ib0:1", True), ("mlx5_an0:1", True)],
    "sysfs:": [],
    "lspci on SageMaker": [],
    "lspci of a GPU": [],
}
# busbw of large messages (None: no result), the code judged within one node
NCCL_TESTS = {
    "sample_single_success": (231.72, []),
    "sample_failure_output": (None, ["tool.failed"]),
    "sample_pairwise_success": (182.80, []),
    "p5.48xlarge x2 EFA": (437.89, []),
    "H200 single node": (476.98, []),
    "failed run p5": (None, ["tool.failed"]),
}
SEVERAL: dict[str, Iterable[str]] = {
    "fi_info.samples.txt": FI_INFO,
    "fi_pingpong.samples.txt": PINGPONG,
    "ibstat_ibv_devinfo.samples.txt": IBSTAT,
    "nccl_tests.samples.txt": NCCL_TESTS,
}


def root() -> Path:
    return samples.folder() / "efa"


def parts(name: str) -> dict[str, str]:
    """heading -> text."""
    pieces = SPLIT.split((root() / name).read_text())
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def part(name: str, beginning: str) -> str:
    (text,) = [text for heading, text in parts(name).items() if heading.startswith(beginning)]
    return text


def test_every_recorded_file_and_every_sample_in_it_is_listed() -> None:
    present = {str(path.relative_to(root())) for path in root().rglob("*") if path.is_file()}
    assert present == {*LSPCI, *TREES, *SEVERAL}
    for name, listed in SEVERAL.items():
        for heading in parts(name):
            assert [word for word in listed if heading.startswith(word)], f"{name}: {heading} is not listed"


def text_of(name: str) -> str:
    path = root() / name
    return gzip.decompress(path.read_bytes()).decode(errors="replace") if name.endswith(".gz") else path.read_text()


@pytest.mark.parametrize(("name", "count"), LSPCI.items())
def test_machines_without_efa_have_none_and_none_is_missing(name: str, count: tuple[int, int]) -> None:
    listed = efa_text.listed(text_of(name))
    assert (len(listed.present), len(listed.fell)) == count
    host = SpokenHost(answers={"lspci": printed(text_of(name))})
    assert codes(looked(efa_enumeration.CHECK, host, Ask())) == []


@pytest.mark.parametrize(("beginning", "names"), FI_INFO.items())
def test_fi_info_of_every_age_names_each_adapter_once(beginning: str, names: tuple[str, ...]) -> None:
    text = part("fi_info.samples.txt", beginning)
    assert efa_text.domains(text) == names
    assert efa_text.fi_error(text) == ("" if names else "fi_getinfo: -61")


@pytest.mark.parametrize(("beginning", "rows"), PINGPONG.items())
def test_recorded_pingpongs_passed(beginning: str, rows: int) -> None:
    text = part("fi_pingpong.samples.txt", beginning)
    assert efa_text.pingpong_rows(text) == rows
    assert passed(printed(text))


@pytest.mark.parametrize(("beginning", "ports"), IBSTAT.items())
def test_recorded_ports_are_read_and_ports_never_seen_up_are_no_fault(
    beginning: str, ports: list[tuple[str, bool]]
) -> None:
    text = part("ibstat_ibv_devinfo.samples.txt", beginning)
    assert [(port.name, port.up) for port in printed_ports(text)] == ports
    series = Series()
    for at in (0.0, 300.0, 900.0):
        ask = Ask(at=at, series=series, uptime_s=9e4)
        assert looked(infiniband.CHECK, SpokenHost(answers={"ibstat": printed(text)}), ask) == []


def test_the_adapter_of_a_recorded_g4dn_is_counted_and_a_gpu_is_none() -> None:
    assert efa_text.listed(part("ibstat_ibv_devinfo.samples.txt", "lspci on SageMaker")).present == ("00:07.0",)
    assert efa_text.listed(part("ibstat_ibv_devinfo.samples.txt", "lspci of a GPU")) == efa_text.Listed(())


@pytest.mark.parametrize(("beginning", "busbw", "told"), [(name, *row) for name, row in NCCL_TESTS.items()])
def test_recorded_all_reduces_are_judged_as_they_ended(beginning: str, busbw: float | None, told: list[str]) -> None:
    text = part("nccl_tests.samples.txt", beginning)
    run = parse(text)
    assert (run.busbw(MIB64), run.wrong, run.finished) == (busbw, 0, busbw is not None)
    done = printed(text, 0 if run.finished else 3)
    signs = NCCL.judge(Reading(done, outputs={"first": done}, files={"gpus": "8"}), Ask(profile=P5))
    assert codes(signs) == told
    assert all(found(sign).severity < Severity.RESET for sign in signs)


def h100() -> SpokenHost:
    """The recorded tree as a host's /sys/class/infiniband."""
    host = SpokenHost()
    folders: dict[str, set[str]] = {}
    with tarfile.open(root() / TREES[0]) as archive:
        for member in archive:
            inner = member.name.removeprefix("./").partition("/")[2]
            path = f"/sys/class/infiniband/{inner}" if inner else "/sys/class/infiniband"
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                host.files[path] = file.read().decode(errors="replace")
            if inner:
                folders.setdefault(path.rpartition("/")[0], set()).add(path.rpartition("/")[2])
    host.folders = {path: tuple(sorted(names)) for path, names in folders.items()}
    return host


def test_the_recorded_h100_host_is_well_though_one_of_its_counters_stands_at_255() -> None:
    host, series = h100(), Series()
    for at in (0.0, 300.0):
        assert looked(infiniband.CHECK, host, Ask(at=at, series=series, uptime_s=9e4)) == []
    assert len(infiniband.ports(infiniband.collect(host, Ask()))) == 9
    assert series.points["infiniband/mlx5_1:1/link_downed"][-1][1] == 255


def test_the_recorded_h100_host_loses_a_port() -> None:
    host, series = h100(), Series()
    looked(infiniband.CHECK, host, Ask(at=0.0, series=series))
    host.files["/sys/class/infiniband/mlx5_4/ports/1/state"] = "1: DOWN\n"
    host.files["/sys/class/infiniband/mlx5_4/ports/1/phys_state"] = "2: Polling\n"
    for at in (300.0, 600.0):
        signs = looked(infiniband.CHECK, host, Ask(at=at, series=series))
    assert [(sign.code, sign.traits["port"]) for sign in signs] == [("nic.link-down", "mlx5_4:1")]
    assert load().fault_of("nic.link-down") is not None
