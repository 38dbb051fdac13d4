"""Whatever a node prints, the network checks neither raise nor call for a replacement, and nothing is not health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sickbay.catalog import load
from sickbay.checks import BY_NAME, efa_text, infiniband_sysfs, infiniband_text, nccl_text
from sickbay.checks.run import run
from sickbay.checks.series import Series
from sickbay.checks.signs import Ask
from sickbay.model import Severity, Status
from sickbay.ports import Completed
from tests.checks.network import PONG, fi_info, lspci, small
from tests.checks.test_infiniband import IBSTAT
from tests.checks.test_nccl_allreduce import table
from tests.fuzzing import EXAMPLES

NAMES = ("efa-enumeration", "efa-loopback", "efa-counters", "nccl-allreduce", "infiniband", "peermem")
WORDS = (
    lspci(2), lspci(1, " (rev ff)"), fi_info(2), PONG, IBSTAT, table(wrong=2).stdout, "link rdmap16s0/1 rx_drops 7 ",
    "provider: efa", "domain:", "fi_getinfo: -61", "4: ACTIVE", "1: DOWN", "255", "400 Gb/sec (4X NDR)", "0x1d0f",
    "0x15b3", "# Out of bounds values : 9 FAILED", "unhandled system error", "Max locked memory  12  12 bytes", "=10",
    "-1", "NaN", "9" * 40, "\x00", "\u0663\u0664", "Port 1:", "CA 'x'", "\r\n", "1e999", "uverbs0",
    "efa_0 rdmap0s26 mlx5_0",
)  # fmt: skip
texts = st.lists(st.sampled_from(WORDS) | st.text(max_size=20), max_size=6).map("\n".join)
fuzz = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow], deadline=None)


@fuzz
@given(texts)
def test_fuzz_every_parser_takes_any_text(text: str) -> None:
    efa_text.listed(text)
    assert len(efa_text.domains(text)) <= efa_text.MOST
    efa_text.verbs_devices(text)
    efa_text.rises(efa_text.rdma_statistics(text), efa_text.rdma_statistics(text[::-1]))
    assert efa_text.pingpong_rows(text) >= 0
    assert nccl_text.parse(text).wrong >= 0
    infiniband_text.printed_ports(text)
    infiniband_text.ports_of({"mlx5_0:1/state": text, "mlx5_0:1/rate": text, "mlx5_0:1/counters/link_downed": text})
    infiniband_sysfs.as_counters({"rdmap0s26/rx_drops": text})


@dataclass
class MadHost:
    """Answers every question with the next of these texts."""

    said: list[str]
    code: int | None
    gone: bool
    name: str = "node-1"
    at: int = 0
    kept: dict[str, str] = field(default_factory=dict)

    def _next(self) -> str:
        self.at += 1
        return self.said[self.at % len(self.said)]

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        return Completed(
            self.code, self._next(), self._next(), timed_out=self.gone and self.at % 3 == 0, missing=self.gone
        )

    def read(self, path: str) -> str | None:
        return None if self.gone and self.at % 2 else self._next()

    def names(self, path: str) -> tuple[str, ...] | None:
        return tuple(self._next().split())[:6] or None

    def fetch(
        self, url: str, timeout_s: float, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> str | None:
        return None

    def kernel_lines(self, cursor: str) -> tuple[list[str], str]:
        return [], cursor

    def boot_id(self) -> str:
        return "boot"


@fuzz
@given(
    st.sampled_from(NAMES),
    st.lists(texts, min_size=1, max_size=3),
    st.sampled_from([0, 1, 61, 127, None]),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_fuzz_no_check_raises_or_replaces(name: str, said: list[str], code: int | None, gone: bool, nodes: int) -> None:
    options = {"efa-settle-s": "0", "efa-retry-s": "0"}
    ask = Ask(profile=small(), series=Series(), options=options, suite="prolog", nodes=nodes, uptime_s=9e4)
    for at in (0.0, 300.0):
        found = run(MadHost(said, code, gone), [name], load(), at=at, ask=ask)
        assert found
        assert all(finding.severity < Severity.REPLACE for finding in found)
        assert not any("broke" in finding.reason and finding.code == "tool.failed" for finding in found), found


@pytest.mark.parametrize("name", ["efa-loopback", "nccl-allreduce"])
def test_a_deep_check_on_a_host_without_tools_is_unknown(name: str) -> None:
    (finding,) = run(MadHost([""], None, True), [name], load(), at=0.0, ask=Ask(profile=small()))
    assert finding.status is Status.UNKNOWN
    assert BY_NAME[name].deep
