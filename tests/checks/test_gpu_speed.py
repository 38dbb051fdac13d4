"""gpu-speed: slow among its like, on this node or in the fleet; never against a fixed number."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.catalog import load
from sickbay.checks import gpu_speed
from sickbay.checks.run import run
from sickbay.checks.signs import Ask, Reading
from sickbay.model import Finding, Severity, Status
from tests.checks.hosts import SpokenHost, printed
from tests.checks.test_gpu_matmul import Rehearsal
from tests.fuzzing import EXAMPLES, FORMS, forms

H100 = {"gemm-tflops": 640.0, "memory-gbs": 2900.0, "h2d-gbs": 54.0}


def line(gpu: int, **reached: float) -> str:
    wobble = 1.0 + 0.004 * (gpu % 3)
    told = {name: value * wobble for name, value in H100.items()}
    told |= {name.replace("_", "-"): value for name, value in reached.items()}
    return json.dumps({"kind": "speed", "gpu": gpu, "name": "NVIDIA H100 80GB HBM3", **told})


def judged(*lines: str, peers: Mapping[str, tuple[float, ...]] | None = None) -> list[Finding]:
    host = SpokenHost({"python3": printed("\n".join(lines))})
    return run(host, ["gpu-speed"], load(), at=0.0, ask=Ask(peers=peers or {}))


def sick(*lines: str, peers: Mapping[str, tuple[float, ...]] | None = None) -> list[Finding]:
    return [f for f in judged(*lines, peers=peers) if f.code]


def eight(slow: int = -1, **reached: float) -> list[str]:
    return [line(n, **reached) if n == slow else line(n) for n in range(8)]


def test_gpus_that_reach_the_same_are_well_and_say_what_they_reached() -> None:
    found = judged(*eight())
    assert {f.status for f in found} == {Status.OK}
    assert found[0].traits["measure.gpu-speed.gemm-tflops"] == "640"


def test_a_gpu_far_below_the_others_is_slow() -> None:
    (found,) = sick(*eight(3, gemm_tflops=410.0))
    assert (found.code, found.severity, found.traits["index"]) == ("compute.slow", Severity.RESET, "3")
    assert found.reason.startswith("GPU 3 multiplies matrices slowly: 410 TFLOPS, where the other GPUs of this node")


def test_some_per_cent_between_good_gpus_are_no_finding() -> None:
    assert sick(*eight(3, gemm_tflops=590.0)) == []


def test_slow_copies_from_the_host_cost_speed_and_treat_no_node() -> None:
    (found,) = sick(*eight(6, h2d_gbs=12.5))
    assert (found.code, found.severity) == ("compute.slow-pcie", Severity.MONITOR)


def test_a_node_that_is_slow_as_a_whole_is_seen_against_the_fleet() -> None:
    fleet = {"gpu-speed.gemm-tflops": (640.0, 638.0, 641.0, 645.0, 636.0, 640.0)}
    slow = [line(n, gemm_tflops=500.0 + n) for n in range(8)]
    assert sick(*slow) == []
    assert {f.code for f in sick(*slow, peers=fleet)} == {"compute.slow"}


def test_too_few_others_are_no_yardstick() -> None:
    assert sick(line(0), line(1, gemm_tflops=100.0)) == []


def test_a_rehearsal_measures_for_real() -> None:
    host = Rehearsal()
    host.more = ("--gpus", "2", "--size", "64", "--megabytes", "1")
    found = run(host, ["gpu-speed"], load(), at=0.0, ask=Ask(options={"compute-backend": "cpu"}))
    reached = found[0].traits
    assert {f.status for f in found} == {Status.OK}
    assert all(float(reached[f"measure.gpu-speed.{name}"]) > 0 for name in gpu_speed.MEASURES)


some_lines = st.lists(
    st.fixed_dictionaries(
        {"kind": st.just("speed"), "gpu": st.integers(-1, 70) | st.none()},
        optional={name: st.floats() | st.integers() | st.text(max_size=3) for name in gpu_speed.MEASURES},
    ).map(json.dumps),
    max_size=10,
)


@given(some_lines)
@settings(max_examples=EXAMPLES // FORMS, deadline=None)
def test_fuzz_any_figures_are_judged(lines: list[str]) -> None:
    for text in forms("\n".join(lines)):
        reading = Reading(printed(text))
        gpu_speed.samples(reading)
        assert all(sign.reason for sign in gpu_speed.judge(reading, Ask(expected_gpus=8)))
