"""Reads InfiniBand and RoCE ports: the files of /sys/class/infiniband, and what ibstat and ibv_devinfo print. Pure.

The check `infiniband` calls it. A port's name is "mlx5_0:1". It must never raise, and never hold a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sickbay.checks.efa_text import MOST, lines_of

UP = "active"
OFF = "disabled"
_CA = re.compile(r"^\s*(?:CA '([^'\s]{1,64})'|hca_id:\s+(\S{1,64}))\s*$")
_PORT = re.compile(r"^\s*(?:Port (\d{1,3}):|port:\s+(\d{1,3}))\s*$")
_NUMBER = re.compile(r"\d{1,7}(?:\.\d{1,3})?")


@dataclass(frozen=True, slots=True)
class Port:
    name: str  # "mlx5_0:1"
    state: str = ""  # active, down, initializing, armed, ...
    physical: str = ""  # linkup, polling, disabled, ...
    rate_gbps: float = 0.0
    layer: str = ""  # InfiniBand or Ethernet
    downed: float | None = None  # how often it lost its link since the counter was cleared; 8 bits, stops at 255

    @property
    def up(self) -> bool:
        return self.state == UP

    @property
    def known(self) -> bool:
        return bool(self.state)


def ports_of(files: Mapping[str, str | None]) -> list[Port]:
    """From "mlx5_0:1/state" -> "4: ACTIVE" and so on."""
    found: dict[str, Port] = {}
    for path, text in files.items():
        name, _, file = path.partition("/")
        if text is not None and ":" in name:
            found[name] = _with(found.get(name, Port(name)), file, text.strip()[:80])
    return list(found.values())[:MOST]


def _with(port: Port, file: str, text: str) -> Port:
    word = text.partition(":")[2].strip().lower() or text.lower()
    match file:
        case "state":
            return replace(port, state=word)
        case "phys_state":
            return replace(port, physical=word)
        case "rate":
            return replace(port, rate_gbps=_figure(text))
        case "link_layer":
            return replace(port, layer=text)
        case "counters/link_downed":
            return replace(port, downed=_figure(text) if text[:1].isdecimal() else None)
    return port


def _figure(text: str) -> float:
    found = _NUMBER.match(text)
    return float(found[0]) if found else 0.0


def printed_ports(text: str) -> list[Port]:
    """From ibstat (`Port 1:` below `CA 'mlx5_0'`) or ibv_devinfo (`port: 1` below `hca_id: mlx5_0`)."""
    adapter, current, found = "", "", dict[str, Port]()
    for line in lines_of(text):
        if (ca := _CA.match(line)) is not None:
            adapter, current = ca[1] or ca[2], ""
        elif (number := _PORT.match(line)) is not None:
            current = f"{adapter}:{number[1] or number[2]}"
            found[current] = Port(current)
        elif current and len(found) <= MOST:
            key, _, value = line.strip().partition(":")
            found[current] = _said(found[current], key.lower(), value.strip()[:80])
    return list(found.values())[:MOST]


def _said(port: Port, key: str, value: str) -> Port:
    match key:
        case "state":
            return replace(port, state=_state(value))
        case "physical state":
            return replace(port, physical=value.lower())
        case "rate":
            return replace(port, rate_gbps=_figure(value))
        case "link layer" | "link_layer":
            return replace(port, layer=value)
    return port


def _state(value: str) -> str:
    """`Active` of ibstat, `PORT_ACTIVE (4)` of ibv_devinfo."""
    return value.partition(" ")[0].lower().removeprefix("port_")
