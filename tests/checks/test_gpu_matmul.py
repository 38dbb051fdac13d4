"""gpu-matmul: the odd one out computes wrong; and nobody is accused who cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.catalog import load
from sickbay.checks import gpu_compute, gpu_compute_lines, gpu_matmul
from sickbay.checks.run import run
from sickbay.checks.signs import Ask, Reading
from sickbay.model import Finding, Severity, Status
from sickbay.ports import Completed
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed
from tests.fuzzing import EXAMPLES, FORMS, forms

RIGHT, WRONG = "a1" * 16, "b2" * 16


def line(gpu: int, digest: str = RIGHT, case: str = "exact-fp16", **more: object) -> str:
    told = {"gpu": gpu, "name": "NVIDIA H100 80GB HBM3", "sms": 132, "digest": digest, "unstable": 0, "kind": "matmul",
            "case": case, "rounds": 64, "reference": "", "backend": "torch 2.4.0, CUDA 12.4"}  # fmt: skip
    return json.dumps({**told, **more})


def judged(*lines: str, expected: int | None = None, code: int = 0) -> list[Finding]:
    host = SpokenHost({"python3": printed("\n".join(lines) + "\n", code)})
    return run(host, ["gpu-matmul"], load(), at=0.0, expected_gpus=expected)


def eight(**odd: str) -> list[str]:
    return [line(n, odd.get(f"gpu{n}", RIGHT)) for n in range(8)]


def test_eight_gpus_that_agree_are_well() -> None:
    assert [f.status for f in judged(*eight(), expected=8)] == [Status.OK]


def test_the_odd_one_out_corrupts_silently() -> None:
    (found,) = judged(*eight(gpu5=WRONG))
    assert (found.code, found.severity, found.status) == ("compute.mismatch", Severity.RESET, Status.FAILED)
    assert found.reason == "GPU 5 computes other numbers than it should, and reports no error"
    assert found.traits["index"] == "5"
    assert "where 7 others got a1a1" in found.evidence[0]


def test_a_corrupting_gpu_is_replaced_only_after_treatments_have_failed() -> None:
    fault = load().faults["silent-corruption"]
    ladder = load().ladders[fault.ladder]
    assert [rung.verb.value for rung in ladder] == ["RESET_GPU", "REBOOT", "REPLACE"]
    assert "gpu-matmul" in fault.verify_with


def test_of_two_that_differ_nobody_is_accused_without_a_reference() -> None:
    (found,) = judged(line(0), line(1, WRONG))
    assert (found.code, found.severity) == ("compute.disagree", Severity.MONITOR)


def test_of_two_that_differ_the_reference_tells() -> None:
    (found,) = judged(line(0, reference=RIGHT), line(1, WRONG, reference=RIGHT))
    assert (found.code, found.traits["index"]) == ("compute.mismatch", "1")


def test_one_gpu_alone_is_judged_by_the_reference_and_unknown_without() -> None:
    assert [f.code for f in judged(line(0, WRONG, reference=RIGHT))] == ["compute.mismatch"]
    assert [f.status for f in judged(line(0, reference=RIGHT))] == [Status.OK]
    assert [f.status for f in judged(line(0))] == [Status.UNKNOWN]


def test_when_all_gpus_agree_against_the_cpu_no_gpu_is_accused() -> None:
    (found,) = judged(*[line(n, reference=WRONG) for n in range(8)])
    assert (found.code, found.severity) == ("compute.disagree", Severity.MONITOR)
    assert "the CPU of this node computes something else" in found.reason


def test_four_against_four_accuses_nobody() -> None:
    assert [f.code for f in judged(*[line(n, RIGHT if n % 2 else WRONG) for n in range(8)])] == ["compute.disagree"]


def test_a_gpu_that_disagrees_with_itself_needs_no_other_to_accuse_it() -> None:
    (found,) = judged(line(0, reference=RIGHT, unstable=3), line(1, reference=RIGHT))
    assert found.severity is Severity.RESET
    assert "3 numbers came out differently" in found.evidence[0]


def test_rounding_that_differs_among_like_gpus_is_only_watched() -> None:
    (found,) = judged(*[line(n, WRONG if n == 2 else RIGHT, "random-fp16") for n in range(8)])
    assert (found.status, found.severity) == (Status.DEGRADED, Severity.MONITOR)


def test_gpus_with_another_number_of_sms_may_round_differently() -> None:
    rows = [line(n, WRONG if n == 2 else RIGHT, "random-fp16", sms=130 if n == 2 else 132) for n in range(8)]
    assert [f.status for f in judged(*rows)] == [Status.OK]


def test_a_gpu_that_breaks_off_fails_and_the_others_are_still_compared() -> None:
    rows = eight(gpu5=WRONG)
    rows[2] = json.dumps({"gpu": 2, "kind": "matmul", "case": "exact-fp16", "error": "RuntimeError: CUDA error: ECC"})
    assert [(f.code, f.traits["index"]) for f in judged(*rows)] == [("compute.mismatch", "5"), ("compute.failed", "2")]


def test_a_gpu_in_use_is_not_a_broken_one() -> None:
    broken = {"gpu": 2, "kind": "matmul", "case": "exact-fp16", "error": "OutOfMemoryError: CUDA out of memory."}
    found = judged(*eight()[:2], json.dumps(broken), *eight()[3:])
    assert [(f.status, f.severity) for f in found] == [(Status.UNKNOWN, Severity.NONE)]


def test_all_gpus_failing_alike_is_the_software() -> None:
    same = "RuntimeError: no kernel image is available"
    rows = [json.dumps({"gpu": n, "kind": "matmul", "case": "x", "error": same}) for n in range(8)]
    assert {f.status for f in judged(*rows)} == {Status.UNKNOWN}


def test_gpus_that_did_not_take_part_have_not_passed() -> None:
    (found,) = judged(*eight()[:6], expected=8)
    assert (found.status, found.reason) == (
        Status.UNKNOWN, "only 6 of 8 GPUs took part: the others were not looked at",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (MISSING, "no Python here"),
        (TIMED_OUT, "did not answer in time"),
        (printed(json.dumps({"error": "no torch or cupy here"}), 3), "no torch or cupy here"),
        (printed("Segmentation fault", 139), "printed no result"),
    ],
)
def test_a_node_that_cannot_compute_is_unknown(answer: Completed, says: str) -> None:
    (found,) = run(SpokenHost({"python3": answer}), ["gpu-matmul"], load(), at=0.0)
    assert (found.status, found.severity) == (Status.UNKNOWN, Severity.NONE)
    assert says in found.reason


class Rehearsal(SpokenHost):
    """Runs the script for real, with the numpy backend."""

    more: tuple[str, ...] = ()

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        asked = [sys.executable, *argv[1:], *self.more]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
        return Completed(done.returncode, done.stdout, done.stderr)


def rehearsed(*more: str) -> list[Finding]:
    host = Rehearsal()
    host.more = more
    limits = {**Ask().limits, "matmul-size": 48.0, "matmul-rounds": 3.0}
    ask = Ask(options={"compute-backend": "cpu"}, limits=limits)
    return run(host, ["gpu-matmul"], load(), at=0.0, ask=ask, expected_gpus=4)


def test_a_rehearsal_on_the_cpu_runs_the_very_script_and_finds_the_spoilt_one() -> None:
    (found,) = rehearsed("--gpus", "4", "--wrong", "2")
    assert (found.code, found.traits["index"]) == ("compute.mismatch", "2")
    assert len(found.evidence) == 2


def test_a_rehearsal_on_the_cpu_without_a_spoilt_one_is_well() -> None:
    assert [f.status for f in rehearsed("--gpus", "4")] == [Status.OK]


def test_without_torch_or_cupy_the_script_says_so_and_never_takes_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("numpy")
    if gpu_compute.backend_of("auto", 8, -1) is not None:
        pytest.skip("this machine has a GPU")
    assert json.loads(capsys.readouterr().out)["error"] == "no torch or cupy here"


def test_products_of_whole_numbers_are_exact_in_any_order() -> None:
    """What the comparison rests on: float32 sums in another order, and the CPU's float64, give the same bits."""
    numpy = pytest.importorskip("numpy")
    cpu = gpu_compute.Cpu()
    for dtype, span, scale in list(gpu_compute.CASES.values())[:2]:
        a, b = (cpu.matrix(0, seed, 64, dtype, span, scale) for seed in (1, 2))
        turned = numpy.ascontiguousarray(cpu.product(0, a[:, ::-1].copy(), b[::-1].copy()))
        assert cpu.raw(turned) == cpu.raw(cpu.exact(a, b)) == cpu.raw(cpu.product(0, a, b))


def test_the_largest_sums_stay_where_they_are_exact() -> None:
    """Six standard deviations of a sum of `matmul-size` products, below 2**24 and 2**11."""
    size = Ask().limits["matmul-size"]
    for span, limit in ((gpu_compute.WIDE, 2**24), (gpu_compute.NARROW, 2**11)):
        variance = span * (span + 1) / 3
        assert 6 * variance * size**0.5 < limit


def test_the_script_fits_into_one_argument_and_needs_nothing_of_ours() -> None:
    text = gpu_compute_lines.script()
    assert len(text.encode()) < 128 * 1024
    assert "sickbay" not in text
    assert "import numpy" not in text.split("class Cpu")[0]


some_lines = st.lists(
    st.text(max_size=60)
    | st.fixed_dictionaries(
        {"kind": st.just("matmul"), "gpu": st.integers(-1, 9) | st.none() | st.text(max_size=3)},
        optional={
            "case": st.sampled_from(["exact-fp16", "random-fp16", "", 7]),
            "digest": st.sampled_from([RIGHT, WRONG, "", 3]),
            "unstable": st.integers(-1, 2) | st.text(max_size=2),
            "reference": st.sampled_from([RIGHT, "", None]),
            "error": st.text(max_size=20) | st.integers(),
            "name": st.text(max_size=5) | st.integers(),
        },
    ).map(json.dumps),
    max_size=12,
)


@given(some_lines)
@settings(max_examples=EXAMPLES // FORMS, deadline=None)
def test_fuzz_any_lines_are_judged_and_never_replace_a_part(lines: list[str]) -> None:
    readings = [Reading(printed(text)) for text in forms("\n".join(lines))]
    for sign in [sign for reading in readings for sign in gpu_matmul.judge(reading, Ask(expected_gpus=8))]:
        assert sign.reason
        fault = load().fault_of(sign.code)
        assert fault is not None
        assert fault.severity < Severity.REPLACE
