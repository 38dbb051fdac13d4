"""gpu-slowdown: does the hardware hold a GPU's clocks down, for heat or the power brake, and does it last?

`checks/run` calls it on a Host. Believed after six polls within ten minutes, or, where the driver counts the slowed
time itself, when that is most of the time between two looks: then polls five minutes apart are enough. A software
power cap, idleness and clocks that somebody has set are how a healthy GPU works, and never findings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sickbay.checks.nvidia_smi import slowed
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote, unusable
from sickbay.checks.smi_text import Card, parse
from sickbay.ports import Host

TIMEOUT_S = 60.0
_COUNTED = {"thermal": ("hw_thermal_slowdown",), "power": ("hw_power_braking", "hw_power_brake_slowdown")}
_MICROSECONDS = re.compile(r"(\d{1,18}) us")


def collect(host: Host, ask: Ask) -> Reading:
    return Reading(host.run(("nvidia-smi", "-q", "-d", "PERFORMANCE"), TIMEOUT_S))


def samples(reading: Reading) -> dict[str, float]:
    """Is each GPU slowed now, and for how many seconds has it been, by the driver's count."""
    found: dict[str, float] = {}
    for card in parse(reading.done.stdout).cards:
        if not card.device:
            continue
        found[_figure(card, "active")] = 1.0 if slowed(card) else 0.0
        for name, keys in _COUNTED.items():
            if (seconds := _seconds(card, keys)) is not None:
                found[_figure(card, name)] = seconds
    return found


def _figure(card: Card, name: str) -> str:
    return f"gpu-slowdown/{card.device}/{name}"


def _seconds(card: Card, keys: tuple[str, ...]) -> float | None:
    value = _MICROSECONDS.fullmatch(card.get(*(f"clocks_event_reasons_counters/{key}" for key in keys)))
    return int(value[1]) / 1e6 if value else None


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if blind := unusable(reading.done, "nvidia-smi"):
        return [blind]
    return [sign for card in parse(reading.done.stdout).cards if card.device for sign in _card(card, ask)]


def _card(card: Card, ask: Ask) -> Iterator[Sign]:
    window = ask.limits["slowdown-window-s"]
    times = ask.series.times(_figure(card, "active"), ask.at - window)
    reason = slowed(card) or "hw_slowdown"
    if times >= ask.limits["slowdown-polls"]:
        said = f"the hardware slowed {card.device} down in {times} looks within {window / 60:.0f} minutes ({reason})"
        yield _sign(card, said, reason, {"measure.slowdown-polls": str(times)})
    elif (share := _share(card, ask)) >= ask.limits["slowdown-share"]:
        said = f"the hardware slowed {card.device} down for {share:.0%} of the last {window / 60:.0f} minutes"
        yield _sign(card, said, reason, {"measure.slowdown-share": f"{share:.2f}"})


def _share(card: Card, ask: Ask) -> float:
    """Slowed seconds by the driver's count, against the seconds between the first and last look in the window."""
    start = ask.at - ask.limits["slowdown-window-s"]
    shares = [0.0]
    for name in _COUNTED:
        points = ask.series.since(_figure(card, name), start)
        watched = points[-1][0] - points[0][0] if points else 0.0
        if watched >= ask.limits["slowdown-window-s"] / 2:
            shares.append(min(1.0, ask.series.rise(_figure(card, name), start) / watched))
    return max(shares)


def _sign(card: Card, said: str, reason: str, measured: dict[str, str]) -> Sign:
    shown = quote(f"GPU {card.device}: {reason} : Active")
    return Sign("smi.slowdown-hw", said, card.device, shown, part=card.get("serial_number"), traits=measured)


CHECK = Check("gpu-slowdown", None, collect, judge, samples)
