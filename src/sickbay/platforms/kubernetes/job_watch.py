"""Following one kind of job object for `Eyes`. A kind whose definition is not installed is no error: it is looked for
again later, so that a training operator may be installed after us. It must never keep the eyes from opening."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sickbay.errors import ApiError
from sickbay.kube.objects import Anything
from sickbay.kube.watch import Gone, Put, Reflector, Synced
from sickbay.platforms.kubernetes.clerk import Clerk
from sickbay.platforms.kubernetes.gangs.index import Source
from sickbay.platforms.kubernetes.gangs.kinds import GangObject
from sickbay.platforms.kubernetes.gangs.words import Stop
from sickbay.platforms.kubernetes.site import Site
from sickbay.typed import built

built(GangObject)  # read by as many threads at once as there are kinds
built(Stop)

log = logging.getLogger(__name__)

AGAIN_S = 60.0  # between two looks for a kind of job that is not installed
UNREACHABLE_S = 1.0

Sink = Callable[[str, Put[GangObject] | Gone | Synced], None]


class JobWatch:
    def __init__(self, site: Site, source: Source, sink: Sink, clerk: Clerk) -> None:
        self.source, self._api, self._sink, self._clerk = source, site.api, sink, clerk
        self._watch = Reflector(site.api, source.path, GangObject, self._hear, params=source.params)
        self.synced = threading.Event()  # also when there is nothing to watch
        self._said = ""

    def start(self) -> None:
        if self.source.optional:
            self._clerk.at(0.0, ("source", self.source.name), self._look_for_it)
        else:
            self._watch.start()

    def stop(self) -> None:
        self._watch.stop()

    def _hear(self, told: Put[GangObject] | Gone | Synced) -> None:
        self._sink(self.source.name, told)
        if isinstance(told, Synced):
            self.synced.set()

    def _look_for_it(self) -> None:
        try:
            self._api.get(self.source.path, Anything, limit="1", **self.source.params)
        except ApiError as error:
            if error.not_found or error.refused:
                self._is_not_there(error)
            again_s = AGAIN_S if self.synced.is_set() else UNREACHABLE_S
            self._clerk.at(again_s, ("source", self.source.name), self._look_for_it)
        else:
            self._watch.start()

    def _is_not_there(self, error: ApiError) -> None:
        if not error.not_found and self._said != error.said:
            log.warning("jobs of kind %s are not seen: %s", self.source.name, error)
            self._said = error.said
        self.synced.set()
