"""Topology as the original read it (docs/originals-bugs.md, 002.12 #14), and as it is."""

from __future__ import annotations

from sickbay.catalog import load
from sickbay.checks import topology
from sickbay.checks.signs import Ask
from sickbay.model import Status
from tests.checks.hosts import SpokenHost, printed
from tests.checks.test_topology import links, printed_matrix

P5 = load().profiles["p5.48xlarge"]
ASK = Ask(expected_gpus=8, profile=P5, uptime_s=90_000.0)


def codes(matrix: str) -> set[str]:
    host = SpokenHost(
        answers={
            "nvidia-smi topo -m": printed(matrix),
            "nvidia-smi nvlink -s": printed(links()),
            "systemctl is-active": printed("active\n"),
        }
    )
    signs = topology.judge(topology.collect(host, ASK), ASK)
    return {sign.code for sign in signs if sign.status is not Status.OK and sign.status is not Status.UNKNOWN}


def test_the_x_of_a_gpu_with_itself_and_the_legend_are_no_findings() -> None:
    """originals 002.12 #14: X means Self; the legend's "not supported" made every B200 a warning."""
    assert codes(printed_matrix(8)) == set()


def test_fewer_links_than_the_type_has_are_found() -> None:
    """originals 002.12 #14: any NV number passed; a pair at NV17 or over the CPU was not seen."""
    assert "smi.nvlink-narrow" in codes(printed_matrix(8, changed={(0, 3): "NV17"}))
    assert codes(printed_matrix(8, changed={(0, 3): "SYS"})) != set()
