"""Another job of the same name: its owner deleted the one that we look after and submitted one again at once.

Where both fall between two looks nobody sees the deletion. What is known of the old one (its last step, its suspects,
its owner's word about ranks out of reach) says nothing of the new one, which is told by the identity of its object.
Called by core/recover.py, and by controller/jobs.py of a job that was given up. Pure.
"""

from __future__ import annotations

from sickbay.core.frozen import replace
from sickbay.model import Job, JobPhase, Recovery


def is_another(r: Recovery, job: Job | None) -> bool:
    """A new object is the same job where it is our doing: some kinds are deleted and made again to be restarted, and
    that always writes a later number than is on record, while an owner's job begins at the first again (or, copied
    with our words on it, at one that has been). Nor is one that a stop of ours holds: nobody has begun it, and whoever
    else would bring it back? Where either identity is not known it is taken for the same, as an old record is."""
    if job is None or not r.uid or not job.uid or job.uid == r.uid:
        return False
    return job.attempt <= r.attempt and not _we_hold(job)


def _we_hold(job: Job) -> bool:
    return job.phase is JobPhase.STOPPED and job.stopped_by.startswith(f"{job.id}#")


def known(r: Recovery, job: Job | None) -> Recovery:
    """It is about this object from now on. What its owner said of ranks out of reach he said of the one before."""
    if job is None or job.uid in ("", r.uid):
        return r
    return replace(r, uid=job.uid, unfenced=0 if r.uid else r.unfenced)


def words(job: str) -> str:
    return f"{job} was deleted, and another job of its name was submitted"
