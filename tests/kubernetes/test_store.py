"""What only a store in an API server can get wrong: requests, names, lost answers, processes, people with kubectl."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from sickbay import wire
from sickbay.controller.drafts import Draft, Writers
from sickbay.errors import StaleWrite, StoreError
from sickbay.kube import names
from sickbay.kube.access import from_kubeconfig
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.model import Case, Command, Entry, Ledger, NodeRecord, Part, Pause, Recovery, Verb
from sickbay.stores.kubernetes import KubernetesStore
from sickbay.stores.kubernetes_objects import name_of
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.stores import builders
from tests.stores.builders import a_case, a_command, a_pause, a_recovery

from .shelf import install_crds

OpenStore = Callable[..., KubernetesStore]


class LossyApi(Api):
    """A real client on a bad line: an answer is lost after the server gave it, or a request before it got there."""

    lose_answers = False
    lose_requests = ""  # of this method

    def _ask(
        self, connection: http.client.HTTPSConnection, method: str, target: str, data: bytes | None,
        headers: dict[str, str],
    ) -> bytes:  # fmt: skip
        if method == self.lose_requests:
            raise ConnectionResetError("the line is down")
        said = super()._ask(connection, method, target, data, headers)
        if self.lose_answers:
            raise ConnectionResetError("the line is down")
        return said


@pytest.fixture
def open_store(cluster: Cluster, api: Api, namespace: str) -> Iterator[OpenStore]:
    install_crds(cluster)
    opened: list[KubernetesStore] = []

    def open_store(through: Api | None = None, cluster_name: str = "") -> KubernetesStore:
        opened.append(KubernetesStore(through or api, namespace, cluster_name))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> KubernetesStore:
    return open_store()


@pytest.fixture
def lossy(api: Api) -> Iterator[LossyApi]:
    lossy = LossyApi(api.access)
    yield lossy
    lossy.close()


def _asked(cluster: Cluster, mark: int, namespace: str) -> list[str]:
    """What the API server was asked about our records, in its own words."""
    lines = cluster.audit(mark, namespace=namespace)
    found = [line for line in lines if (line.get("objectRef") or {}).get("apiGroup") == names.GROUP]
    return [f"{line['verb']} {line['objectRef']['resource']}" for line in found if line["verb"] != "watch"]


# --- what it asks -----------------------------------------------------------------------------------------------------


def test_the_whole_life_of_a_case_is_one_request_a_step(
    cluster: Cluster, store: KubernetesStore, namespace: str
) -> None:
    mark = cluster.audit_mark()
    version = store.create(a_case(), epoch=1)
    for step in range(2, 5):
        version = store.commit(replace(a_case(), step=step), version, epoch=1)
    store.archive(replace(a_case(), step=5), version, epoch=1)
    assert _asked(cluster, mark, namespace) == ["create nodecases", *(["update nodecases"] * 4)]


def test_a_store_that_was_just_opened_asks_once_for_what_it_does_not_know(
    cluster: Cluster, open_store: OpenStore, namespace: str
) -> None:
    version = open_store().create(a_case(), epoch=1)
    later = open_store()
    mark = cluster.audit_mark()
    version = later.commit(a_case(), version, epoch=2)
    later.commit(a_case(), version, epoch=2)
    assert _asked(cluster, mark, namespace) == ["get nodecases", "update nodecases", "update nodecases"]


def test_a_takeover_that_listed_the_records_stamps_each_with_one_request(
    cluster: Cluster, open_store: OpenStore, namespace: str
) -> None:
    first, second = open_store(), open_store()
    for number in range(20):
        first.create(NodeRecord(f"n{number}"), epoch=1)
    mark = cluster.audit_mark()
    found = second.list(NodeRecord)
    Writers(second).write([Draft(stored.value, stored.version) for stored in found], epoch=2)
    assert sorted(_asked(cluster, mark, namespace)) == ["list noderecords", *(["update noderecords"] * 20)]
    assert {stored.epoch for stored in second.list(NodeRecord)} == {2}


def test_peoples_wishes_are_read_from_the_watch_and_seen_soon(
    cluster: Cluster, open_store: OpenStore, namespace: str
) -> None:
    ours, theirs = open_store(), open_store()
    before = ours.token()
    assert ours.list(Pause) == []
    mark = cluster.audit_mark()
    theirs.create(a_pause())
    until(lambda: ours.token() != before, "the token changes", every_s=0.01)
    assert [stored.value for stored in ours.list(Pause)] == [a_pause()]
    assert _asked(cluster, mark, namespace) == ["create pauses"]


def test_the_echo_of_our_own_write_is_no_news(open_store: OpenStore) -> None:
    """Or the controller would wake itself up after every commit."""
    ours, theirs = open_store(), open_store()
    ours.token()
    before = theirs.token()
    version = ours.create(a_case(), epoch=1)
    ours.commit(a_case(), version, epoch=1)
    ours.create(a_command())
    ours.delete(Command, "c1")
    known = ours.token()
    until(lambda: theirs.token() == before + 4, "the other one has heard of it all")
    watch = ours._watches[Command]
    until(lambda: watch.there() == set() and watch.version > version, "and so has ours")
    assert ours.token() == known == before + 4


# --- names ------------------------------------------------------------------------------------------------------------

ODD = (
    "train/pytorchjob/llama",
    "train-pytorchjob-llama",
    "Train/PyTorchJob/Llama",
    "a" * 300,
    "ünïcode/…/\n",
    "-",
    "..",
    "x" * 253,
)


def test_any_key_is_kept_under_a_name_that_kubernetes_takes(store: KubernetesStore) -> None:
    for job in ODD:
        store.create(a_recovery(job))
    assert [stored.value.job for stored in store.list(Recovery)] == sorted(ODD)
    for job in ODD:
        found = store.get(Recovery, job)
        assert found is not None
        assert found.value == a_recovery(job)


def test_plain_keys_are_their_own_names_and_others_stay_readable() -> None:
    assert name_of("gpu-node-7.3") == "gpu-node-7.3"
    assert name_of("train/pytorchjob/llama").startswith("train-pytorchjob-llama-")
    assert len({name_of(key) for key in ODD}) == len(ODD)
    assert all(len(name_of(key)) <= 253 for key in ODD)


# --- people with kubectl ----------------------------------------------------------------------------------------------


def test_kubectl_reads_like_a_ward_list(cluster: Cluster, store: KubernetesStore, namespace: str) -> None:
    case = replace(a_case("gpu-7.3"), refusal="3 of 3 nodes of pool a100 are out", opened_at=1_700_000_000.0)
    store.create(case, epoch=1)
    heads, line = cluster.kubectl("get", "nc", "-n", namespace, "-o", "wide").splitlines()
    assert heads.split("  ")[0] == "NAME"
    for head, shown in (
        ("NODE", "gpu-7"), ("PHASE", "WAITING"), ("FAULT", "gpu-lost"), ("SEVERITY", "REBOOT"), ("RUNG", ""),
        ("WAITING FOR", "3 of 3 nodes of pool a100 are out"), ("POOL", "default"), ("WHY", "the GPU fell off the bus"),
    ):  # fmt: skip
        assert line[heads.index(head) :].startswith(shown), (head, heads, line)
    assert "gpu-7.3" in cluster.kubectl("get", "sickbay", "-n", namespace)


def test_describe_says_first_what_a_person_wants_with_times_that_can_be_read(
    cluster: Cluster, store: KubernetesStore, namespace: str
) -> None:
    store.create(replace(a_case("gpu-7.3"), refusal="3 of 3 nodes are out", opened_at=1_700_000_000.0), epoch=1)
    said = cluster.kubectl("describe", "nc", "gpu-7.3", "-n", namespace).splitlines()
    first = next(i for i, line in enumerate(said) if line.startswith("About:"))
    assert first < next(i for i, line in enumerate(said) if line.startswith("Record:"))
    told = " ".join(said[first : first + 8])
    assert "gpu-7 is WAITING since 20" in told
    assert "waits for 3 of 3 nodes are out" in told
    assert "sickbay case show gpu-7.3" in told


def test_describe_of_a_recovery_says_first_where_the_job_stands(
    cluster: Cluster, store: KubernetesStore, namespace: str
) -> None:
    store.create(replace(a_recovery("llama"), refusal="2 good nodes are wanted, and 1 is free"), epoch=1)
    said = cluster.kubectl("describe", "jr", name_of("llama"), "-n", namespace).splitlines()
    first = next(i for i, line in enumerate(said) if line.startswith("About:"))
    assert first < next(i for i, line in enumerate(said) if line.startswith("Record:"))
    told = " ".join(said[first : first + 8])
    assert "llama is " in told
    assert "waits for 2 good nodes are wanted, and 1 is free" in told


def test_describe_of_a_case_fits_on_a_screen_and_shows_no_time_as_a_number(
    cluster: Cluster, store: KubernetesStore, namespace: str
) -> None:
    """It was 234 lines for a case that had been treated, with times as 1.79e+09."""
    store.create(treated_case("gpu-7.3"), epoch=1)
    said = cluster.kubectl("describe", "nc", "gpu-7.3", "-n", namespace)
    assert len(said.splitlines()) <= 60, said
    assert "e+09" not in said


def test_a_record_that_an_earlier_version_wrote_as_a_tree_is_read_and_gone_on_with(
    open_store: OpenStore, store: KubernetesStore, api: Api, namespace: str
) -> None:
    case = treated_case("gpu-7.3")
    version = store.create(case, epoch=1)
    path = names.custom(namespace, "nodecases", "gpu-7.3")
    tree = msgspec.json.decode(wire.encode(case))
    api.patch(path, [{"op": "replace", "path": "/record", "value": tree}], Anything, how="json")
    found = open_store().get(Case, case.id)
    assert found is not None
    assert found.version > version
    assert found.value == case
    store.commit(replace(case, refusal="once more"), found.version, 1)
    again = open_store().get(Case, case.id)
    assert again is not None
    assert again.value.refusal == "once more"


def test_a_rung_that_was_never_tried_is_not_shown(cluster: Cluster, store: KubernetesStore, namespace: str) -> None:
    store.create(replace(a_case("gpu-7.3"), rung=Verb.REBOOT), epoch=1)  # a relapse: treatment starts above it
    assert "REBOOT" not in cluster.kubectl("get", "nc", "-n", namespace, "-o", "jsonpath={.items[*].shown.rung}")


def test_every_kind_has_columns_and_its_record_can_be_read_with_kubectl(
    cluster: Cluster, store: KubernetesStore, namespace: str
) -> None:
    for value in builders.ONE_OF_EACH:
        store.create(value, epoch=1)
    shown = cluster.kubectl("get", "sickbay", "-n", namespace)
    for word in (
        "BLAME",
        "LATCHED",
        "BREAKER",
        "STRIKES",
        "TARGET",
        "SCOPE",
        "llama",
        "closed",
        "S1",
        "approve",
        "fleet",
    ):
        assert word in shown
    record = cluster.kubectl("get", "nc", "n1.1", "-n", namespace, "-o", "jsonpath={.record.json}")
    assert "NVRM: Xid 79" in msgspec.json.decode(record)["diagnoses"][0]["because"][0]


def treated_case(key: str) -> Case:
    """As long as they get in practice: a ladder of three rungs and what the node's record holds."""
    at, case = 1_790_000_000.0, a_case(key)
    story = tuple(Entry(i, "DONE", at + i, "sickbay", f"step {i} is done", "DRAINING") for i in range(24))
    times = tuple(("DRAINING", at + i) for i in range(24))
    known = NodeRecord(case.node, seen={"a": 1, "b": 2})
    return replace(case, journal=story, timeline=times, opened_at=at, record=known)


PAUSE = """
apiVersion: sickbay.dev/v1alpha1
kind: Pause
metadata: {name: network-work}
record: {scope: "pool:a100", by: ann, why: switch firmware}
"""


def test_a_pause_applied_by_hand_counts_whatever_it_is_called(
    cluster: Cluster, store: KubernetesStore, namespace: str
) -> None:
    cluster.kubectl("apply", "-n", namespace, "--validate=strict", "-f", "-", stdin=PAUSE)
    assert [stored.value for stored in store.list(Pause)] == [Pause("pool:a100", "ann", "switch firmware", since=0.0)]
    found = store.get(Pause, "pool:a100")
    assert found is not None
    store.delete(Pause, "pool:a100")
    assert store.list(Pause) == []


def test_a_pause_that_could_not_be_understood_is_refused_by_the_server(cluster: Cluster, namespace: str) -> None:
    install_crds(cluster)
    said = cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=PAUSE.replace("pool:a100", "a100"), check=False)
    assert "record.scope" in said


# --- lost answers, lost requests, outages -----------------------------------------------------------------------------


def test_a_commit_whose_answer_was_lost_is_found_by_looking_again(open_store: OpenStore, lossy: LossyApi) -> None:
    store = open_store(lossy)
    version = store.create(a_case(), epoch=1)
    lossy.lose_answers = True
    with pytest.raises(StoreError, match="cannot be reached, whether a write arrived is not known"):
        store.commit(replace(a_case(), step=2), version, epoch=1)
    lossy.lose_answers = False
    with pytest.raises(StaleWrite, match="has moved on"):
        store.commit(replace(a_case(), step=2), version, epoch=1)
    stored = store.get(Case, "n1.1")
    assert stored is not None
    assert stored.value.step == 2
    store.commit(replace(a_case(), step=3), stored.version, epoch=1)


def test_a_commit_that_never_arrived_may_be_made_again(open_store: OpenStore, lossy: LossyApi) -> None:
    store = open_store(lossy)
    version = store.create(a_case(), epoch=1)
    lossy.lose_requests = "PUT"
    with pytest.raises(StoreError, match="cannot be reached"):
        store.commit(replace(a_case(), step=2), version, epoch=1)
    lossy.lose_requests = ""
    store.commit(replace(a_case(), step=2), version, epoch=1)


def test_a_consumed_command_is_never_seen_again_although_its_deletion_was_lost(
    open_store: OpenStore, lossy: LossyApi, api: Api, namespace: str
) -> None:
    """Whoever looks next, also after a crash of the one who consumed it, deletes it again."""
    people, leader = open_store(), open_store(lossy)
    for name in ("c1", "c2", "c3"):
        people.create(a_command(name))
    version = leader.create(a_case(), epoch=1)
    lossy.lose_requests = "DELETE"
    version = leader.commit(replace(a_case(), step=2), version, 1, consumes=["c1"])
    assert [stored.value.id for stored in leader.list(Command)] == ["c2", "c3"]
    leader.archive(replace(a_case(), step=3), version, 1, consumes=["c2"])
    successor = open_store()
    assert [stored.value.id for stored in successor.list(Command)] == ["c3"]
    there = api.list(names.custom(namespace, "commands"), Anything)
    assert [one.metadata.name for one in there] == ["c3"]


def test_a_record_carries_its_consumed_commands_until_they_are_gone(open_store: OpenStore, lossy: LossyApi) -> None:
    open_store().create(a_command("c1"))
    leader = open_store(lossy)
    version = leader.create(a_case(), epoch=1)
    lossy.lose_requests = "DELETE"
    version = leader.commit(replace(a_case(), step=2), version, 1, consumes=["c1"])
    version = leader.commit(replace(a_case(), step=3), version, 1)
    assert open_store().list(Command) == []
    lossy.lose_requests = ""
    leader.commit(replace(a_case(), step=4), version, 1)
    assert leader._cache.look(Case, "n1.1").consumed == ()  # type: ignore[union-attr]


def test_through_a_cut_the_token_still_tells_of_others_writes(
    cluster: Cluster, open_store: OpenStore, namespace: str
) -> None:
    people = open_store()
    people.create(a_pause("node:n1"))
    with cluster.proxy() as proxy:
        through = Api(from_kubeconfig(proxy.kubeconfig), timeout_s=2.0)
        store = open_store(through)
        before = store.token()
        assert len(store.list(Pause)) == 1
        proxy.freeze()
        people.delete(Pause, "node:n1")
        people.create(a_pause("fleet"))
        proxy.cut()
        proxy.thaw()
        until(lambda: store.token() >= before + 2, "both writes are heard")
        assert [stored.value.scope for stored in store.list(Pause)] == ["fleet"]
        store.close()
        through.close()


def test_a_server_that_is_not_there_is_said_in_plain_words(namespace: str, api: Api) -> None:
    nowhere = Api(replace(api.access, port=1))
    with pytest.raises(StoreError, match=r"NodeRecord n1: the API server cannot be reached.*refused"):
        KubernetesStore(nowhere, namespace).get(NodeRecord, "n1")


def test_a_namespace_or_definitions_that_are_missing_are_said_in_plain_words(open_store: OpenStore, api: Api) -> None:
    open_store()
    with pytest.raises(StoreError, match=r"there is no namespace nowhere-land: create it"):
        KubernetesStore(api, "nowhere-land").create(a_case())
    prefixed = Api(replace(api.access, prefix="/nothing-here"))
    with pytest.raises(StoreError, match=r"definitions are not installed: kubectl apply -f deploy/kubernetes/crds/"):
        KubernetesStore(prefixed, "default").create(a_case())
    prefixed.close()


def test_what_could_not_be_read_back_is_never_written(store: KubernetesStore) -> None:
    with pytest.raises(StoreError, match="not a readable NodeRecord"):
        store.create(NodeRecord("n1", boot_seen=float("inf")))
    assert store.get(NodeRecord, "n1") is None


def test_a_record_of_another_cluster_is_refused(open_store: OpenStore) -> None:
    store = open_store(cluster_name="east")
    store.create(a_case())
    assert store.list(Case)[0].value.cluster == "east"
    with pytest.raises(StoreError, match="belongs to cluster 'west'"):
        store.create(replace(a_case("n2.1"), cluster="west"))


def test_numbers_times_and_empty_fields_come_back_as_they_were(store: KubernetesStore) -> None:
    """The server stores JSON its own way: 100.0 becomes 100, and who knows what becomes of a null."""
    ledger = Ledger(1, 1234567.123456789, 1.7e9, windows={"a/CORDON": (1.0, 2.5)}, breaker="<&>\u2028\x7f")
    part = Part("S" * 40, nodes=("n1",), condemned='"quoted" \\ and\ttabbed')
    case = replace(a_case(), deadline=0.0, retry_at=0.1 + 0.2, first_evidence_at=2.0**53)
    for value in (ledger, part, case):
        store.create(value, epoch=1)
    found = store.get(Ledger, ""), store.get(Part, part.serial), store.get(Case, case.id)
    assert [stored.value for stored in found if stored] == [ledger, part, case]


# --- jobs that come back ----------------------------------------------------------------------------------------------


def test_a_job_that_comes_back_often_keeps_its_history_in_order(store: KubernetesStore) -> None:
    for life in range(4):
        version = store.create(replace(a_recovery(), restarts=life), epoch=1)
        store.archive(replace(a_recovery(), restarts=life), version, epoch=1)
    store.create(replace(a_recovery(), restarts=9), epoch=1)
    assert [recovery.restarts for recovery in store.history(Recovery)] == [3, 2, 1, 0]
    assert [stored.value.restarts for stored in store.list(Recovery)] == [9]
    assert store.prune(older_than=1000.0) == 4


def test_a_crash_while_a_job_comes_back_shows_its_past_once(open_store: OpenStore, lossy: LossyApi) -> None:
    store = open_store(lossy)
    store.archive(a_recovery(), store.create(a_recovery(), epoch=1), epoch=1)
    lossy.lose_requests = "PUT"  # copied aside, and then: dead
    with pytest.raises(StoreError):
        store.create(a_recovery(), epoch=1)
    later = open_store()
    assert len(list(later.history(Recovery))) == 1
    assert later.list(Recovery) == []
    later.create(a_recovery(), epoch=2)
    assert len(list(later.history(Recovery))) == 1


# --- processes --------------------------------------------------------------------------------------------------------


def _run(cluster: Cluster, namespace: str, script: str, *arguments: str) -> subprocess.Popen[str]:
    """Another process with a store of its own, which may use the builders."""
    lines = f"""import sys; sys.path.insert(0, {str(Path(builders.__file__).parent)!r}); from builders import *
from dataclasses import replace
from sickbay.kube.api import open_api
from sickbay.stores.kubernetes import KubernetesStore
store = KubernetesStore(open_api(sys.argv[1]), sys.argv[2])
{script}"""
    argv = [sys.executable, "-c", lines, str(cluster.kubeconfig), namespace, *arguments]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def test_processes_racing_for_seats_never_overbook(cluster: Cluster, store: KubernetesStore, namespace: str) -> None:
    store.create(Ledger(epoch=1), epoch=1)
    race = 'print(sum(take_a_seat(store, f"{sys.argv[3]}-{n}.1", seats=7) for n in range(10)))'
    racers = [_run(cluster, namespace, race, name) for name in ("a", "b", "c")]
    won = [int(racer.communicate(timeout=60)[0]) for racer in racers]
    stored = store.get(Ledger, "")
    assert stored is not None
    assert sum(won) == 7 == len(stored.value.seats)


ENDLESS = """
version, step = store.create(a_case(), epoch=1), 1
while True:
    step += 1
    store.create(a_command(f"c{step}"))
    version = store.commit(replace(a_case(), step=step), version, 1, consumes=[f"c{step}"])
    print(step, flush=True)
"""


def test_a_writer_killed_in_the_middle_loses_and_doubles_nothing(
    cluster: Cluster, store: KubernetesStore, namespace: str
) -> None:
    writer = _run(cluster, namespace, ENDLESS)
    assert writer.stdout is not None
    said = [writer.stdout.readline() for _ in range(10)]
    writer.send_signal(signal.SIGKILL)
    said += writer.communicate()[0].splitlines(keepends=True)
    last = max(int(line) for line in said if line.endswith("\n"))
    stored = store.get(Case, "n1.1")
    assert stored is not None
    assert stored.value.step in (last, last + 1)  # + 1: committed, and killed before it could say so
    left = [command.value.id for command in store.list(Command)]
    assert left in ([], [f"c{stored.value.step + 1}"])  # asked for, and not carried out
    store.commit(replace(stored.value, step=99), stored.version, 2)
