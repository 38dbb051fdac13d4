"""What was last sent to a node's machine, kept on the node itself: the memory that makes a treatment happen once.

The annotation `keys.treatment` is written by a conditional PATCH just before the provider is called, so a controller
that dies at any line finds on the node what it may have sent. reboot.py, power.py, replace.py and reset.py write it;
guard.py reads it (`under_way`). It must never call a provider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

import msgspec

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.conflicts import settle
from sickbay.kube.objects import NodeObject
from sickbay.model import Action, Failed, Lost, Outcome, Refuted, Unguarded, Verb
from sickbay.platforms.kubernetes import rights
from sickbay.platforms.kubernetes.site import Site, awaited
from sickbay.platforms.kubernetes.views import boot_of, instance_of, is_ready

SENT = "sent"  # the provider was, or may have been, called
STARTING = "starting"  # POWER_CYCLE: it was seen without power, and is being started
FORCING = "forcing"  # POWER_CYCLE: its system did not let go, so power is being cut
FAILED = "failed"  # the provider refused: nothing happened to the machine
NEVER = "never"  # the call never arrived: it may be made once more
LIVE = frozenset((SENT, STARTING, FORCING))

# After so many seconds a treatment no longer keeps the next one away. Each is below what any ladder or profile of the
# catalog gives its rung, so the case has always given up on the first treatment before the door lets in the second.
HOLDS_S: Mapping[str, float] = {
    Verb.RESET_GPU: 960.0,  # its Job is at work no longer: reset.LIMIT_S, its start, and the minute to put things back
    Verb.REBOOT: 540.0,
    Verb.POWER_CYCLE: 840.0,
    Verb.REPLACE: 1_740.0,
}
LONGEST = 400

Guard = Callable[[Site, Action], str]  # "" or why the treatment is refused at the door


@dataclass(frozen=True, slots=True)
class Treatment:
    key: str
    verb: str
    at: float  # wall time of the controller that sent it
    boot_id: str
    instance: str
    state: str = SENT
    detail: str = ""
    uid: str = ""
    machine: str = ""  # the provider's whole id: it says where the instance is


def treatment_on(site: Site, node: NodeObject) -> Treatment | None:
    """What the node remembers; None if nothing, or nothing that can be read."""
    text = node.metadata.annotation(site.keys.treatment)
    try:
        return msgspec.json.decode(text.encode(), type=Treatment) if text else None
    except (msgspec.MsgspecError, UnicodeError):
        return None


def under_way(site: Site, node: NodeObject, but: str = "") -> str:
    """Why another treatment may not begin: one with another key is still at work on this machine. "" when none is."""
    known = treatment_on(site, node)
    if known is None or known.key == but or known.state not in LIVE or is_over(node, known):
        return ""
    age = site.clock.now() - known.at
    if age > HOLDS_S.get(known.verb, 0.0):
        return ""
    return f"{node.metadata.name} is under treatment: {known.verb} of {known.key} was sent {max(0.0, age):.0f} s ago"


def is_over(node: NodeObject, known: Treatment) -> bool:
    """The machine has booted since, or another one bears the name: whatever was sent has had its effect."""
    if known.verb == Verb.RESET_GPU:
        return False  # a reset boots nothing; the door that sent it says when it is over
    return boot_of(node) not in ("", known.boot_id) or instance_of(node) != known.instance


# --- remembering ------------------------------------------------------------------------------------------------------


def read(site: Site, name: str) -> NodeObject | None:
    return site.api.find(names.node(name), NodeObject)


def begin(site: Site, action: Action, guard: Guard) -> tuple[NodeObject, Treatment] | Outcome:
    """Guard, then remember that the call is about to be made: both for the same version of the node, or neither. One
    that may not be remembered was never sent, and somebody can give that right back."""
    try:
        return settle(partial(_begin, site, action, guard))
    except ApiError as error:
        if error.passing or not rights.is_missing(error):
            raise
        return Lost(rights.named(error))


def _begin(site: Site, action: Action, guard: Guard) -> tuple[NodeObject, Treatment] | Outcome:
    node = read(site, action.place.node)
    why = guard(site, action) if node else f"there is no node {action.place.node}"
    if why or node is None:
        return Unguarded(why)
    if action.args.get("unless") == "ready" and is_ready(node):
        return Refuted(f"{action.place.node} was away and is ready again")
    made = Treatment(
        action.key, action.verb.value, site.clock.now(), boot_of(node), instance_of(node),
        uid=node.metadata.uid, machine=node.spec.provider_id,
    )  # fmt: skip
    return remember(site, node, made), made


def remember(site: Site, node: NodeObject, treatment: Treatment) -> NodeObject:
    """One write, refused (409) when anybody has written to the node since it was read."""
    text = msgspec.json.encode(asdict(treatment)).decode()
    meta = {"resourceVersion": node.metadata.resource_version, "uid": node.metadata.uid}
    body = {"metadata": {**meta, "annotations": {site.keys.treatment: text}}}
    return site.api.patch(names.node(node.metadata.name), body, NodeObject)


def move(site: Site, name: str, known: Treatment, state: str, detail: str = "") -> bool:
    """Write the next state of a treatment if the node still remembers this one; False if it does not."""
    return settle(partial(_move, site, name, known.key, state, detail[:LONGEST]))


def _move(site: Site, name: str, key: str, state: str, detail: str) -> bool:
    node = read(site, name)
    if node is None or (there := treatment_on(site, node)) is None or there.key != key:
        return False
    remember(site, node, replace(there, state=state, detail=detail))
    return True


def forgotten(action: Action, node: NodeObject | None) -> Outcome:
    """The answer to a mere look at a treatment that the node knows nothing of."""
    name = action.place.node
    if node is None and action.args.get("withdraw") == "1":
        return Failed(f"{name} is not there any more, and with it what was sent to it")
    if node is None:
        return awaited(name)
    if action.before.uid and node.metadata.uid != action.before.uid:
        return Failed(f"the object {name} was deleted and made again: whether {action.verb} was sent is not known")
    return Lost(f"{action.key} never arrived: {name} remembers no such {action.verb}")


def ended(known: Treatment) -> Outcome | None:
    """What the provider said to a call that came to nothing."""
    if known.state == FAILED:
        return Failed(known.detail or "the provider refused")
    if known.state == NEVER:
        return Lost(known.detail or "the provider never got the call")
    return None
