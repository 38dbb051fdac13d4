"""gpu-matmul: does any GPU of this node compute something else than the others? For quarantine (deep).

Every GPU makes the same seeded products many times over (gpu_compute.py); the odd one out corrupts silently. Products
of whole numbers have one right answer, which the CPU knows too, so that two GPUs, or one, can be judged. Products of
random numbers must only agree among GPUs of one model and one number of SMs, and alone accuse nobody of a fault.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from sickbay.checks import gpu_compute_lines as compute
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote
from sickbay.model import Status
from sickbay.ports import Host

NAME = "gpu-matmul"
LIMIT_S = 900.0
LEAST = 3  # without a reference: of two that differ, either may be right


def collect(host: Host, ask: Ask) -> Reading:
    size, rounds = int(ask.limits["matmul-size"]), int(ask.limits["matmul-rounds"])
    return compute.run(host, ask, "matmul", "--size", str(size), "--rounds", str(rounds), limit_s=LIMIT_S)


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    found = compute.lines(reading.done.stdout, "matmul")
    if blind := compute.blind(reading, found):
        return [blind]
    good = [line for line in found if not line.get("error") and compute.text_of(line, "digest")]
    accused: dict[int, list[str]] = defaultdict(list)
    doubted: dict[int, list[str]] = defaultdict(list)
    unclear: list[Sign] = []
    for case, results in _by_case(good).items():
        unclear += _case(case, results, accused, doubted)
    told = [_mismatch(gpu, why, None) for gpu, why in sorted(accused.items())]
    told += [_mismatch(gpu, why, Status.DEGRADED) for gpu, why in sorted(doubted.items()) if gpu not in accused]
    return told + compute.failures(found, "matrix") + unclear + compute.uncompared(found, ask.expected_gpus)


def _by_case(good: list[compute.Line]) -> dict[str, list[compute.Line]]:
    cases: dict[str, list[compute.Line]] = defaultdict(list)
    for line in good:
        cases[compute.text_of(line, "case")].append(line)
    return cases


Reasons = dict[int, list[str]]


def _case(case: str, results: list[compute.Line], accused: Reasons, doubted: Reasons) -> Iterator[Sign]:
    for line in results:
        unstable = line.get("unstable")
        if isinstance(unstable, int) and unstable > 0:
            accused[line["gpu"]].append(f"{case}: {unstable} numbers came out differently from one time to the next")
    if not case.startswith("exact"):
        for group in _alike(results).values():
            _odd_ones(case, group, doubted)
        return
    reference = compute.text_of(results[0], "reference")
    if reference and _believed(reference, results):
        for line in results:
            if line["digest"] != reference:
                accused[line["gpu"]].append(f"{case}: {line['digest'][:12]} instead of {reference[:12]}")
    else:
        yield from _by_majority(case, results, reference, accused)


def _believed(reference: str, results: list[compute.Line]) -> bool:
    """When several GPUs agree with each other and none with the CPU, it is the CPU that is odd."""
    digests = {line["digest"] for line in results}
    return reference in digests or len(digests) > 1 or len(results) == 1


def _by_majority(case: str, results: list[compute.Line], reference: str, accused: Reasons) -> Iterator[Sign]:
    digests = Counter(line["digest"] for line in results)
    if len(digests) == 1 and reference:
        said = f"all {len(results)} GPUs agree, and the CPU of this node computes something else"
        yield Sign("compute.disagree", said, evidence=quote(f"{case}: GPUs {_short(digests)}, CPU {reference[:12]}"))
    elif len(digests) > 1 and not _odd_ones(case, results, accused):
        said = f"{len(results)} GPUs disagree on one product, and which of them is wrong cannot be told"
        yield Sign("compute.disagree", said, evidence=quote(f"{case}: {_short(digests)}"))
    elif len(results) == 1:
        said = "one GPU alone was asked, with nothing to compare it with"
        yield Sign("tool.failed", said, status=Status.UNKNOWN)


def _odd_ones(case: str, results: list[compute.Line], accused: Reasons) -> bool:
    """Whether a clear majority could say who is odd."""
    digests = Counter(line["digest"] for line in results)
    ((right, votes),) = digests.most_common(1)
    if len(results) < LEAST or votes * 2 <= len(results):
        return False
    for line in results:
        if line["digest"] != right:
            accused[line["gpu"]].append(f"{case}: {line['digest'][:12]}, where {votes} others got {right[:12]}")
    return True


def _short(digests: Mapping[str, int]) -> str:
    return ", ".join(f"{many} x {digest[:12]}" for digest, many in sorted(digests.items())[:4])


def _alike(results: list[compute.Line]) -> dict[tuple[str, str, str], list[compute.Line]]:
    groups: dict[tuple[str, str, str], list[compute.Line]] = defaultdict(list)
    for line in results:
        groups[compute.text_of(line, "name"), str(line.get("sms")), compute.text_of(line, "backend")].append(line)
    return groups


def _mismatch(gpu: int, why: list[str], status: Status | None) -> Sign:
    reason = f"GPU {gpu} computes other numbers than it should, and reports no error"
    if status is Status.DEGRADED:
        reason = f"GPU {gpu} rounds differently than GPUs of its model: watch it"
    return Sign("compute.mismatch", reason, evidence=quote(*why), status=status, traits=compute.place(gpu))


CHECK = Check(NAME, None, collect, judge, deep=True, own_limit_s=LIMIT_S)
