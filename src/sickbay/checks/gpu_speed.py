"""gpu-speed: is a GPU slow, though it reports nothing? Matrix products, its memory, and copies from the host (deep).

Each figure is compared with the other GPUs of the node and with what other nodes reached, never with a fixed number:
median minus five times the usual distance from it, and a tenth below besides. The slowest GPU sets a gang's pace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from statistics import median

from sickbay.checks import gpu_compute_lines as compute
from sickbay.checks.peers import outlier
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote
from sickbay.model import Status
from sickbay.ports import Host

NAME = "gpu-speed"
LIMIT_S = 600.0
SIZE = 8192
MEASURES = {
    "gemm-tflops": ("compute.slow", "multiplies matrices", "TFLOPS"),
    "memory-gbs": ("compute.slow", "reads and writes its memory", "GB/s"),
    "h2d-gbs": ("compute.slow-pcie", "gets data from the host", "GB/s"),
}


def collect(host: Host, ask: Ask) -> Reading:
    return compute.run(host, ask, "speed", "--size", str(SIZE), limit_s=LIMIT_S)


def figures(reading: Reading) -> dict[str, dict[int, float]]:
    """measure -> GPU -> what it reached."""
    found: dict[str, dict[int, float]] = {name: {} for name in MEASURES}
    for line in compute.lines(reading.done.stdout, "speed"):
        for name in MEASURES:
            value = line.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool) and _sane(value):
                found[name][line["gpu"]] = float(value)
    return found


def _sane(value: float) -> bool:
    return 0 < value < 1e9 and isfinite(value)


def samples(reading: Reading) -> Mapping[str, float]:
    return {
        f"{NAME}/{gpu}/{name}": value for name, reached in figures(reading).items() for gpu, value in reached.items()
    }


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    found = compute.lines(reading.done.stdout, "speed")
    if blind := compute.blind(reading, found):
        return [blind]
    told = [sign for name, reached in figures(reading).items() for sign in _slow(name, reached, ask)]
    told += compute.failures(found, "speed") + compute.uncompared(found, ask.expected_gpus)
    return [*told, _reached(figures(reading))]


def _slow(name: str, reached: Mapping[int, float], ask: Ask) -> Iterator[Sign]:
    for gpu, value in sorted(reached.items()):
        others = [other for number, other in reached.items() if number != gpu]
        inside = _why(value, others, ask, int(ask.limits["gpu-speed-gpus"]), "the other GPUs of this node")
        fleet = ask.peers.get(f"{NAME}.{name}", ())
        why = inside or _why(value, fleet, ask, int(ask.limits["peer-least"]), "other nodes")
        if why:
            code, does, unit = MEASURES[name]
            said = f"GPU {gpu} {does} slowly: {value:.4g} {unit}, {why}"
            traits = {**compute.place(gpu), f"measure.{NAME}.{name}": f"{value:.6g}"}
            yield Sign(code, said, evidence=quote(_shown(name, reached)), traits=traits)


def _why(value: float, others: list[float] | tuple[float, ...], ask: Ask, at_least: int, whose: str) -> str:
    said = outlier(value, others, mads=ask.limits["peer-mads"], at_least=at_least)
    known = [other for other in others if _sane(other)]
    if said is None or value >= ask.limits["gpu-slow-share"] * median(known):
        return ""
    return f"where {whose} reach {median(known):.4g}"


def _shown(name: str, reached: Mapping[int, float]) -> str:
    return f"{name}: " + ", ".join(f"GPU {gpu} {value:.4g}" for gpu, value in sorted(reached.items()))


def _reached(found: Mapping[str, Mapping[int, float]]) -> Sign:
    """What this node's slowest GPU reached, for the fleet to compare with. It says nothing about health."""
    least = {name: min(reached.values()) for name, reached in found.items() if reached}
    traits = {f"measure.{NAME}.{name}": f"{value:.6g}" for name, value in least.items()}
    shown = quote(*(_shown(name, reached) for name, reached in found.items() if reached))
    return Sign("", "speed of the slowest GPU, for comparison", evidence=shown, status=Status.OK, traits=traits)


CHECK = Check(NAME, None, collect, judge, samples, deep=True, own_limit_s=LIMIT_S)
