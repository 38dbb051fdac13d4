"""etcd put back from a backup under a process that lives on: what it knew of later versions is not true any more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from sickbay.errors import ApiError
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.model import Ledger, Pause
from sickbay.stores.kubernetes import KubernetesStore
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.shelf import install_crds


def answers(api: Api) -> bool:
    """Connections from before do not outlive the API server."""
    try:
        return api.find("/api/v1/namespaces/default", Anything) is not None
    except (ApiError, OSError):
        return False


def test_a_store_that_was_put_back_is_written_to_again_and_what_came_back_is_seen(
    own_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """`The Ledger has moved on (version 323, expected 297)` was said for ever, and the fleet was unattended."""
    cluster = own_cluster(scheduler=False, controllers=False, kwok=False)
    install_crds(cluster)
    api = cluster.api()
    with closing(KubernetesStore(api, "default")) as store:
        store.create(Pause("fleet", "ann", "", since=1.0))
        version = store.create(Ledger(epoch=1), 1)
        store.token()
        cluster.back_up(tmp_path / "yesterday")
        until(lambda: answers(api), "it answers", 30.0)
        for watched in range(1, 30):
            version = store.commit(Ledger(epoch=1, watch_time=float(watched)), version, 1)
        store.delete(Pause, "fleet")
        assert store.list(Pause) == []
        cluster.put_back(tmp_path / "yesterday")
        until(lambda: answers(api), "it answers", 30.0)
        found = store.get(Ledger, "ledger")
        assert found is not None
        assert found.value.watch_time == 0.0
        store.commit(replace(found.value, watch_time=31.0), found.version, 1)
        until(lambda: [p.value.scope for p in store.list(Pause)] == ["fleet"], "the pause is seen again", 60.0)
