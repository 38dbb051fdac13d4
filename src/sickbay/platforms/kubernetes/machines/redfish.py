"""Power by a management controller (Redfish, IPMI): the place for it, and an honest refusal while nobody fills it.

Whoever knows how to reach the controllers of their own machines writes a `PowerSwitch` and puts it into `SWITCHES`
before the controller starts; power.py asks it for machines that are no EC2 instance. Nothing here talks to hardware.
"""

from __future__ import annotations

from typing import Protocol

from sickbay.kube.objects import NodeObject
from sickbay.model import Action, Outcome
from sickbay.platforms.kubernetes.site import Site


class PowerSwitch(Protocol):
    """The whole verb for machines it knows, with everything ports.Platform.perform says about treatments sent once:
    treatment.begin guards and remembers, and each later ask advances one step or looks."""

    def knows(self, node: NodeObject) -> bool: ...

    def cycle(self, site: Site, action: Action) -> Outcome: ...


SWITCHES: list[PowerSwitch] = []


def switch_of(node: NodeObject) -> PowerSwitch | None:
    return next((switch for switch in SWITCHES if switch.knows(node)), None)


def not_configured(node: NodeObject) -> str:
    return (
        f"nobody here can cut the power of {node.metadata.name}: it is no EC2 instance, and no power switch "
        "(Redfish, IPMI) is configured for it; have it power-cycled by hand"
    )
