"""Checks 1 and 4: `dcgmi diag -r 2|4 -j`. Did the GPU tests run, and did one of them find something?

`checks/run` calls it on a Host; `sickbay diagnose` uses `signs` on a file. Skipped tests are not passed tests, and an
exit code that says "error" beside tests that all say "Pass" is not a pass either. DCGM's own severity decides what a
failure without a known error name means; tool, occupancy and set-up errors say nothing about a GPU. What must be so
before a test may run is in `dcgm_gate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sickbay.checks import dcgm_gate
from sickbay.checks.dcgm_diag_results import Report, Result, report
from sickbay.checks.dcgm_errors import CONFIG, ISOLATE, MONITOR, UNNAMED, UNSURE, engine_dead, errors, exit_words, named
from sickbay.checks.dcgm_text import gpu_of
from sickbay.checks.kernel_lines import clean
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote, unusable
from sickbay.model import Status
from sickbay.ports import Completed, Host

TIMEOUT_L2_S = 900.0
TIMEOUT_L4_S = 9_000.0
MOST_SIGNS = 256


def collect_l2(host: Host, ask: Ask) -> Reading:
    limit = dcgm_gate.seconds(ask, "dcgm-timeout-s", TIMEOUT_L2_S)
    done, engine = _run(host, ask, "2", limit)
    return Reading(done, outputs=engine)


def collect_l4(host: Host, ask: Ask) -> Reading:
    """Only on GPUs that nobody uses and that are not split up. What stood in the way is in the reading."""
    before = dcgm_gate.look(host)
    if dcgm_gate.refusal(before) is not None:
        return Reading(Completed(None, "", ""), outputs=before)
    limit = dcgm_gate.seconds(ask, "dcgm-l4-timeout-s", TIMEOUT_L4_S)
    with dcgm_gate.exporters_stopped(host) as services:
        done, engine = _run(host, ask, "4", limit)
    return Reading(done, outputs={**before, **engine, **services})


def _run(host: Host, ask: Ask, level: str, limit: float) -> tuple[Completed, Mapping[str, Completed]]:
    """The diagnostic, unless its engine is known not to answer: that would only wait for the limit."""
    engine = dcgm_gate.engine(host, may_start=dcgm_gate.exclusive(ask))
    if engine and dcgm_gate.silent(last := list(engine.values())[-1]):
        return last, engine
    return host.run(("dcgmi", "diag", "-r", level, "-j"), limit), engine


def keeps_l2(reading: Reading) -> Mapping[str, str]:
    return {"dcgm-l2-raw.json": reading.done.stdout}


def keeps_l4(reading: Reading) -> Mapping[str, str]:
    return {"dcgm-l4-raw.json": reading.done.stdout}


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if (refused := dcgm_gate.refusal(reading.outputs)) is not None:
        return [refused]
    return [*_judged(reading.done), *dcgm_gate.left_behind(reading.outputs)]


def _judged(done: Completed) -> list[Sign]:
    if blind := lost(done):
        return [blind]
    told = signs(done.stdout)
    if len(told) == 1 and told[0].code == "dcgm.unreadable":
        return [silence(done)]
    failed = any(sign.status is not Status.OK for sign in told)
    return told if failed or not done.code else [_contradiction(done)]


def lost(done: Completed) -> Sign | None:
    """No dcgmi, or no answer in time."""
    if done.missing:
        said = "dcgmi is not installed here, so DCGM cannot be asked"
        return Sign("dcgm.missing-tool", said, status=Status.UNKNOWN)
    if done.timed_out and not done.stuck:
        said = "dcgmi did not finish in time and was stopped, so we cannot tell; the GPUs may be busy"
        return Sign("dcgm.timeout", said, evidence=quote(*_last(done.stdout)), status=Status.UNKNOWN)
    return unusable(done, "dcgmi")


def silence(done: Completed) -> Sign:
    """dcgmi answered, with nothing that is a result: why, as far as its words and its exit code say."""
    text = f"{done.stdout}\n{done.stderr}"
    shown = quote(*_last(text), most=2)
    if engine_dead(done.code, text):
        said = "DCGM's host engine does not answer (nv-hostengine, nvidia-dcgm.service), so we cannot tell"
        return Sign("dcgm.dead", said, evidence=shown, status=Status.UNKNOWN)
    if done.code == ISOLATE:  # that a GPU is bad we believe; not knowing which, nothing is done to the node
        said = f"dcgmi says that a GPU should be taken out, but not which: {exit_words(done.code)}"
        return Sign("dcgm.test-failed", said, evidence=shown, status=Status.DEGRADED)
    said = f"dcgmi printed no result we can read ({exit_words(done.code)})"
    return Sign("dcgm.unreadable", said, evidence=shown, status=Status.UNKNOWN)


def _last(text: str) -> list[str]:
    return [line for line in text[:65_536].splitlines() if line.strip()][:4]


def _contradiction(done: Completed) -> Sign:
    """Every test passed, yet dcgmi ended with an error: the originals would call that a pass."""
    said = f"every DCGM test says Pass, but dcgmi ended with {exit_words(done.code)}: not a pass"
    return Sign("dcgm.exit-code", said, evidence=quote(done.stderr[:400]), status=Status.UNKNOWN)


def signs(text: str) -> list[Sign]:
    """What a diagnostic's output says, JSON or table; [] if GPU tests ran and all passed."""
    found = report(text)
    if found is None:
        return [Sign("dcgm.unreadable", "no DCGM result in this text", status=Status.UNKNOWN)]
    told = [sign for result in found.results for sign in _judge(result, found)][:MOST_SIGNS]
    if found.broken:
        said = "DCGM could not run its tests"
        told.append(Sign("tool.failed", said, evidence=quote(found.broken), status=Status.UNKNOWN))
    elif not any(r.hardware and r.status in ("pass", "fail", "warn") for r in found.results):
        told.append(_not_run(found.results))
    return told


def _judge(result: Result, whole: Report) -> Iterator[Sign]:
    if result.status in ("fail", "warn") and not result.warnings:
        yield _sign(result, {}, whole)
    for warning in result.warnings:
        yield _sign(result, warning, whole)


def _sign(result: Result, warning: dict[str, Any], whole: Report) -> Sign:
    text = " ".join(str(warning.get("warning", ""))[:2_000].split())
    name = _name(warning, text, result)
    level = warning.get("error_severity")
    failed = name == UNNAMED and result.hardware and result.status == "fail" and level not in (UNSURE, CONFIG, MONITOR)
    gpu = result.gpus[0] if len(result.gpus) == 1 else gpu_of(text)
    traits = {"test": result.test, "index": gpu, "dcgm_severity": "" if level is None else str(level)[:8]}
    reason = f"DCGM {result.test}{f' on GPU {gpu}' if gpu else ''}: {clean(text, 160) or result.status}"
    return Sign(
        "dcgm.test-failed" if failed else f"dcgm.{name}", reason,
        evidence=quote(text or f"{result.test}: {result.status}"), part=whole.serials.get(gpu, ""),
        status=None if failed else _status(name, level, result), traits={k: v for k, v in traits.items() if v},
    )  # fmt: skip


def _status(name: str, level: object, result: Result) -> Status | None:
    """None: as bad as the catalog says. A warning beside a Pass is only something to watch."""
    if name in errors().settings or level == CONFIG:
        return Status.DEGRADED
    if name in errors().blind:
        return Status.UNKNOWN
    if result.status != "fail" or level == MONITOR:
        return Status.DEGRADED
    return None


def _name(warning: dict[str, Any], text: str, result: Result) -> str:
    number = warning.get("error_id")
    known = errors().names.get(number) if isinstance(number, int) else None
    return known if known and known != UNNAMED else named(text, result.test)


def _not_run(results: tuple[Result, ...]) -> Sign:
    skipped = sum(result.status == "skip" for result in results)
    reason = f"no GPU test ran ({skipped} skipped): that is not a pass"
    shown = quote(*(f"{r.test}: {r.status}" for r in results[:3]))
    return Sign("dcgm.no-hardware-test", reason, evidence=shown, status=Status.UNKNOWN)


CHECK_L2 = Check(
    "dcgm-l2", 1, collect_l2, judge, deep=True, file="1-dcgm-diag-l2", own_limit_s=TIMEOUT_L2_S, keeps=keeps_l2
)
CHECK_L4 = Check(
    "dcgm-l4", 4, collect_l4, judge, deep=True, file="4-dcgm-diag-l4", own_limit_s=TIMEOUT_L4_S, keeps=keeps_l4
)
