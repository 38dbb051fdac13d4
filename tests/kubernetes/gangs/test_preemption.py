"""What takes ranks away and is no failure of theirs: the real scheduler's preemption."""

from __future__ import annotations

from sickbay.kube import names
from sickbay.kube.objects import Anything
from sickbay.model import JobPhase
from tests.kubernetes.gangs.ground import IGNORE_DISRUPTION, Ground


def test_a_gang_preempted_by_work_of_higher_priority_has_not_failed(ground: Ground) -> None:
    ground.nodes(2)
    high, classes = f"high-{ground.namespace}", "/apis/scheduling.k8s.io/v1/priorityclasses"
    ground.api.create(classes, {"metadata": {"name": high}, "value": 100_000}, Anything)
    try:
        job = ground.running(ground.job(podFailurePolicy=IGNORE_DISRUPTION))
        gangs = ground.follow(job.id)
        urgent = {
            "metadata": {"name": "urgent"},
            "spec": ground.pod_template(priorityClassName=high)["spec"],
        }
        ground.api.create(names.pods(ground.namespace), urgent, Anything)
        phases = gangs.until(lambda: any(p is JobPhase.SUSPENDED for p in gangs.phases))
        assert JobPhase.FAILED not in phases
        ground.until_running("urgent")
        shown = gangs.show()
        assert (shown.phase, shown.stopped_by) == (JobPhase.SUSPENDED, "preemption by work of higher priority")
        gangs.stop()
    finally:
        ground.api.delete(f"{classes}/{high}")
