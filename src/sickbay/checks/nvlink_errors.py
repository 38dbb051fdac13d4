"""nvlink-errors: do the error counters of NVLink grow? `nvidia-smi nvlink -e`, compared with the poll before.

`checks/run` calls it on a Host. A count says what happened at some time since the driver loaded, so only growth is
judged (originals 002.6 summed the counts), and the catalog wants it in three polls in a row. Older GPUs' check-sum
counter stops when full: that is said, since from then on nothing can be read from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sickbay.checks.nvlink import Counters, counters
from sickbay.checks.series import Series
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote, unusable
from sickbay.model import Status
from sickbay.ports import Host

TIMEOUT_S = 60.0
KINDS = ("replay", "recovery", "crc")
_WORDS = {"replay": "packets sent again", "recovery": "link retrainings", "crc": "check-sum errors"}


def collect(host: Host, ask: Ask) -> Reading:
    return Reading(host.run(("nvidia-smi", "nvlink", "-e"), TIMEOUT_S))


def samples(reading: Reading) -> dict[str, float]:
    """Sums per GPU: the links would be 432 figures on an 8-GPU node, and the newest output names them anyway."""
    return {
        _figure(gpu.index, kind): float(gpu.total(kind))
        for gpu in counters(reading.done.stdout)
        for kind in KINDS
        if kind in gpu.by_kind
    }


def keeps(reading: Reading) -> dict[str, str]:
    return {"nvlink-errors.txt": reading.done.stdout}


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if blind := unusable(reading.done, "nvidia-smi"):
        return [blind]
    return [sign for gpu in counters(reading.done.stdout) for sign in _gpu(gpu, ask)]


def _figure(index: int, kind: str) -> str:
    return f"nvlink-errors/{index}/{kind}"


def _gpu(gpu: Counters, ask: Ask) -> Iterator[Sign]:
    for kind in KINDS:
        grown = _grown(ask.series, _figure(gpu.index, kind))
        if grown >= ask.limits["nvlink-errors-per-poll"]:
            said = f"{grown:.0f} more {_WORDS[kind]} on the NVLinks of GPU {gpu.index} since the last look"
            yield _sign(gpu, kind, said, grown, Status.DEGRADED if ask.young else None)
        elif kind == "crc" and max(gpu.by_kind.get(kind, {}).values(), default=0) >= ask.limits["nvlink-crc-full"]:
            said = f"the check-sum counter of a link of GPU {gpu.index} is full, so growth can no longer be seen"
            yield _sign(gpu, kind, said, 0.0, Status.DEGRADED)


def _grown(series: Series, name: str) -> float:
    """By how much the counter grew between the last two polls. One that starts anew has not grown: links were reset."""
    values = [value for _, value in series.points.get(name, [])[-2:]]
    return sum(max(0.0, after - before) for before, after in pairwise(values))


def _sign(gpu: Counters, kind: str, said: str, grown: float, status: Status | None) -> Sign:
    worst = sorted(gpu.by_kind[kind].items(), key=lambda item: -item[1])[:4]
    lines = [f"GPU {gpu.index}: Link {link}: {kind} errors: {count}" for link, count in worst if count]
    traits = {"index": str(gpu.index), f"measure.nvlink-{kind}": f"{grown:.0f}"}
    return Sign("smi.nvlink-errors", said, evidence=quote(*lines), status=status, traits=traits)


CHECK = Check("nvlink-errors", None, collect, judge, samples, keeps=keeps)
