"""The Kubernetes platform: ports.Platform over one cluster. Seeing is the Eyes', each verb a function of its own file.

Made by the composition (controller/sites.py) and called by the controller's crew from several threads. It adds to the
verbs what they all share: an API server that does not answer or says "later" is a Retry, one that will say no again is
a Failed with its words, or an Unguarded where the verb is a treatment: what was refused at the door has not been tried,
and must not bring the next, harsher one. It must never raise for either, and holds no decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from sickbay.errors import ApiError, Unreachable, UserError
from sickbay.model import TREATMENTS, Action, Change, Failed, Fleet, Node, Outcome, Retry, Unguarded, Verb
from sickbay.platforms.kubernetes import cordon, drain, groups, machines, rights, withdrawing
from sickbay.platforms.kubernetes.collect import collect
from sickbay.platforms.kubernetes.gangs.checkpoint import checkpoint_job
from sickbay.platforms.kubernetes.gangs.pulse import Pulse
from sickbay.platforms.kubernetes.gangs.restart import restart_job
from sickbay.platforms.kubernetes.gangs.stop import give_way, stop_job
from sickbay.platforms.kubernetes.gate import MayClose
from sickbay.platforms.kubernetes.power import power_cycle
from sickbay.platforms.kubernetes.reboot import reboot
from sickbay.platforms.kubernetes.replace import replace
from sickbay.platforms.kubernetes.reset import reset_gpu
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.verify import verify
from sickbay.platforms.kubernetes.watching import Eyes

log = logging.getLogger(__name__)

AGAIN_S = 5.0
Door = Callable[[Site, Action], Outcome]

DOORS: Mapping[Verb, Door] = {
    Verb.CORDON: cordon.cordon,
    Verb.RELEASE: groups.let_go(withdrawing.with_jobs(cordon.release)),
    Verb.DRAIN: groups.held(partial(drain.drain, is_down=machines.is_down, give_way=give_way)),
    Verb.COLLECT: collect,
    Verb.VERIFY: verify,
    Verb.RESET_GPU: reset_gpu,
    Verb.REBOOT: reboot,
    Verb.POWER_CYCLE: power_cycle,
    Verb.REPLACE: replace,
    Verb.CHECKPOINT_JOB: checkpoint_job,
    Verb.STOP_JOB: stop_job,
    Verb.RESTART_JOB: restart_job,
}


class KubernetesPlatform:
    def __init__(self, site: Site, may_close: MayClose = lambda pool: True) -> None:
        """`may_close`: by the settings, may a new node of this pool be kept from work until it was examined?"""
        self.site = site
        self.rival_pools: frozenset[str] = frozenset()  # whoever looks around for rivals writes it
        self.eyes = Eyes(
            site, is_gone=partial(machines.is_gone, site), ask_machines=partial(machines.what_is_said, site),
            may_close=lambda pool: may_close(pool) and pool not in self.rival_pools,
        )  # fmt: skip
        self.verbs = verbs_of(site)
        self._pulse = Pulse(site, self.eyes.gangs, self.eyes.tell, is_ours=self.eyes.is_ours).start()

    def observe(self) -> Fleet:
        return self.eyes.observe()

    def watch(self, sink: Callable[[Change], None]) -> Callable[[], None]:
        return self.eyes.watch(sink)

    def look(self, node: str) -> Node | None:
        return self.eyes.look(node)

    def ask_after(self, node: str, instance: str) -> None:
        self.eyes.ask_after(node, instance)

    def perform(self, action: Action) -> Outcome:
        if action.verb not in self.verbs:
            return Failed(f"{action.verb} cannot be done here: {_why_not(self.site)}")
        try:
            return self._door(action)(self.site, action)
        except ApiError as error:
            return answered(error, action.verb)
        except UserError as missing:  # a library or a right that is not there
            return Failed(str(missing))

    def close(self) -> None:
        self._pulse.stop()
        self.eyes.close()

    def _door(self, action: Action) -> Door:
        if action.verb is Verb.CORDON:  # what the watch knows saves a read; the patch tests that it is true
            return partial(cordon.cordon, known=self.eyes.known(action.place.node))
        return DOORS[action.verb]


def answered(error: ApiError, verb: Verb) -> Outcome:
    """What an API server's refusal means for an action. A 403 is said as it is: RBAC or an admission policy."""
    if isinstance(error, Unreachable):
        return Retry(AGAIN_S, f"the API server does not answer: {error.said}")
    if rights.is_missing(error) and verb in (Verb.CORDON, Verb.DRAIN, Verb.RELEASE):  # core asks for it again
        return Failed(rights.words(error), lacks=True)
    if rights.is_missing(error) and verb not in TREATMENTS:
        return Retry(rights.AGAIN_S, rights.words(error))
    if error.refused and not error.passing:
        why = f"the API server refuses: {error.said}"
        return Unguarded(why) if verb in TREATMENTS else Failed(why)
    return Retry(max(AGAIN_S, error.retry_after), f"the API server says {error.status} {error.reason}: {error.said}")


def verbs_of(site: Site) -> frozenset[Verb]:
    """With machines = "none" nobody restarts a machine; without a provider nobody cuts its power or replaces it."""
    unable = {
        "none": {Verb.REBOOT, Verb.POWER_CYCLE, Verb.REPLACE},
        "node-job": {Verb.POWER_CYCLE},
    }.get(site.settings.machines, set())
    return frozenset(DOORS) - unable


def _why_not(site: Site) -> str:
    return f"kubernetes.machines is {site.settings.machines!r}"
