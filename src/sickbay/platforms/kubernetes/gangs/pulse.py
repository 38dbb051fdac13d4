"""The reader of progress: every few seconds, how far each running gang is. One thread, and a few at a time.

Made by the platform beside `Eyes`. Gangs that say how their steps are read (sickbay.dev/progress) and have opted in are
asked in turn; a step is told as Progress, a new complete checkpoint is written down on its job, so that it outlives the
log it was read from and us. It must never hold up a watch, and never count its own failure as a job's: a source that
cannot be read is told as that, and the brain counts no silence meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sickbay.errors import ApiError
from sickbay.kube.objects import Anything
from sickbay.model import Checkpoint, Job, JobPhase, Progress
from sickbay.platforms.kubernetes.gangs import kinds, progress, words
from sickbay.platforms.kubernetes.gangs.index import Gangs
from sickbay.platforms.kubernetes.gangs.show import Gang
from sickbay.platforms.kubernetes.site import Site

log = logging.getLogger(__name__)

EVERY_S = 15.0
AT_ONCE = 8


class Pulse:
    def __init__(
        self, site: Site, gangs: Gangs, tell: Callable[[Progress], None], *, every_s: float = EVERY_S,
        is_ours: Callable[[Job], bool] = lambda job: True,
    ) -> None:  # fmt: skip
        self._site, self._gangs, self._tell, self._every_s, self._is_ours = site, gangs, tell, every_s, is_ours
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="pulse", daemon=True)

    def start(self) -> Pulse:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _serve(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self.round()
            except Exception:
                log.exception("the progress of jobs could not be read this time")

    def round(self) -> int:
        """Ask every gang that can be asked, once; returns how many had made a step."""
        shown = (self._gangs.show(job) for job in self._gangs.managed())
        jobs = [job for job in shown if job.phase is JobPhase.RUNNING and self._is_ours(job)]
        if not jobs:
            return 0
        with ThreadPoolExecutor(min(AT_ONCE, len(jobs))) as pool:
            return sum(pool.map(self._feel, jobs))

    def _feel(self, job: Job) -> bool:
        """Whatever one job's source does must not keep the others from being asked."""
        gang = self._gangs.gang(job.id)
        if gang is None:
            return False
        try:
            return self._note(job, gang, progress.read(self._site, gang))
        except ApiError as error:
            log.debug("%s: what was read cannot be written down: %s", job.id, error)
        except Exception as error:
            self._note_unread(job, f"{type(error).__name__}: {error}"[:300])
        return False

    def _note(self, job: Job, gang: Gang, reading: progress.Reading) -> bool:
        now = self._site.clock.now()
        self._note_unread(job, reading.unread)
        known = {c.step for c in job.checkpoints}
        fresh = tuple(Checkpoint(step, now, job.attempt) for step in reading.saved if step not in known)
        news = self._gangs.put_progress(job, reading.step, now, fresh)
        if news and reading.step >= 0:
            self._tell(Progress(job.id, 0, reading.step, now))
        if self._site.helps_jobs and (fresh or self._unwritten(gang, job)):
            self._write_down(gang)
        return news

    def _note_unread(self, job: Job, why: str) -> None:
        """Said once in the log when it begins, and once when it is over."""
        if not self._gangs.put_unread(job, why):
            return
        if why:
            log.warning("%s: its progress cannot be read, and a hang would not be noticed: %s", job.id, why)
        else:
            log.info("%s: its progress can be read again", job.id)
        self._tell(Progress(job.id, 0, job.step, self._site.clock.now(), why))

    def _unwritten(self, gang: Gang, job: Job) -> bool:
        written = {c.step for c in words.read_checkpoints(gang.object.metadata.annotation(words.CHECKPOINTS))}
        return any(c.step not in written for c in job.checkpoints)

    def _write_down(self, gang: Gang) -> None:
        shown = self._gangs.show(gang.id)
        if gang.kind is kinds.BARE or not shown.checkpoints:
            return
        meta, text = gang.object.metadata, words.checkpoints_text(shown.checkpoints)
        patch = {"metadata": {"annotations": {words.CHECKPOINTS: text}, "uid": meta.uid}}
        self._site.api.patch(gang.kind.path(meta.namespace, meta.name), patch, Anything)
