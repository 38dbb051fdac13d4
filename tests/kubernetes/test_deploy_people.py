"""Whose word a Command or a Pause is, on a real API server with two people on call: the server's, not the writer's."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.kube.whoami import username
from sickbay.model import Case, Command, Pause
from sickbay.stores.kubernetes import KubernetesStore
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.builders import a_case
from tests.cli.builders import Said, run_command
from tests.kubernetes.deploying import Installed, installed

Run = Callable[..., Said]
Body = dict[str, Any]


@pytest.fixture(scope="module")
def there(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """With ana and ben, who are on call."""
    namespace, api = f"d-{secrets.token_hex(4)}", cluster.api()
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}}, Anything)
    with installed(cluster, namespace, tmp_path_factory.mktemp("deploy")) as ready:
        for person in ("ana", "ben"):
            account = ready.account(person)
            cluster.kubectl("-n", namespace, "create", "serviceaccount", account)
            bound = (f"--clusterrole={ready.account('on-call')}", f"--serviceaccount={namespace}:{account}")
            cluster.kubectl("-n", namespace, "create", "rolebinding", account, *bound)
        until(
            lambda: "who you are" in said(ready.api("ana"), a_pause(ready, "nobody")), "the policy is known", 30.0, 0.2
        )
        yield ready
    api.delete(f"/api/v1/namespaces/{namespace}")


@pytest.fixture
def run(there: Installed, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """run("ana", "pause", …): the command line with her kubeconfig."""

    def as_person(person: str, *argv: str) -> Said:
        config = tmp_path / f"{person}.toml"
        config.write_text(
            f'store = "kubernetes"\ncluster = "line"\n'
            f'[kubernetes]\nkubeconfig = "{there.kubeconfig(person)}"\nnamespace = "{there.namespace}"\n'
        )
        return run_command(capsys, *argv, "--config", str(config))

    return as_person


@pytest.fixture
def store(there: Installed, api: Api) -> KubernetesStore:
    return KubernetesStore(api, there.namespace, "line")


def a_pause(there: Installed, by: str) -> Body:
    """As somebody writes it with kubectl."""
    record = {"scope": f"node:n-{secrets.token_hex(3)}", "by": by, "why": "power work"}
    return {"apiVersion": "sickbay.dev/v1alpha1", "kind": "Pause", "metadata": {"name": f"p-{secrets.token_hex(3)}",
            "namespace": there.namespace}, "record": record}  # fmt: skip


def a_command(there: Installed, by: str) -> Body:
    name = f"c-{secrets.token_hex(3)}"
    record = {"id": name, "verb": "approve", "target": "n.1", "by": by, "why": "go on"}
    return {"apiVersion": "sickbay.dev/v1alpha1", "kind": "Command", "metadata": {"name": name,
            "namespace": there.namespace}, "key": name, "record": record}  # fmt: skip


def said(api: Api, body: Body, dry: bool = True) -> str:
    """What the API server says against making it; "" when it takes it."""
    path = names.custom(body["metadata"]["namespace"], f"{body['kind'].lower()}s")
    try:
        api.create(path, body, Anything, **({"dryRun": "All"} if dry else {}))
    except ApiError as error:
        return error.said
    return ""


@pytest.mark.parametrize("a_record", [a_pause, a_command])
def test_nobody_writes_in_another_persons_name(there: Installed, a_record: Callable[[Installed, str], Body]) -> None:
    """Ana approved a replacement as ben, and the journal said so."""
    ana = there.api("ana")
    words = said(ana, a_record(there, there.user("ben")))
    assert f"by must be who you are, {there.user('ana')}, not {there.user('ben')}" in words
    assert said(ana, a_record(there, there.user("ana"))) == ""


@pytest.mark.parametrize("a_record", [a_pause, a_command])
def test_nobody_hides_another_persons_name_in_the_form_of_long_records(
    there: Installed, a_record: Callable[[Installed, str], Body]
) -> None:
    """`by` was mallory's, and the line in `record.json`, which counted, said the boss: a REPLACE was approved."""
    body = a_record(there, there.user("ana"))
    body["record"]["json"] = msgspec.json.encode({**body["record"], "by": there.user("ben")}).decode()
    assert "record.json is only for cases and recoveries" in said(there.api("ana"), body)


def test_who_changes_what_another_asked_for_answers_for_it(there: Installed, api: Api) -> None:
    body = a_pause(there, there.user("ana"))
    assert said(there.api("ana"), body, dry=False) == ""
    path = names.custom(there.namespace, "pauses", body["metadata"]["name"])
    with pytest.raises(ApiError, match="by must be who you are"):
        there.api("ben").patch(path, {"record": {"why": "ana wants it longer", "until": 9e9}}, Anything)
    there.api("ben").patch(path, {"metadata": {"labels": {"seen": "true"}}}, Anything)
    there.api("ben").patch(path, {"record": {"why": "longer", "by": there.user("ben")}}, Anything)
    api.delete(path)


def test_the_controllers_token_asks_for_nothing_in_a_persons_stead(there: Installed) -> None:
    for body in (a_pause(there, there.user("controller")), a_command(there, there.user("controller"))):
        assert "cannot create resource" in said(there.api("controller"), body)


def test_the_command_line_says_who_the_api_server_takes_you_for(
    there: Installed, run: Run, store: KubernetesStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "mallory")
    store.create(a_case(node=f"n-{secrets.token_hex(3)}", id=(case := f"n-{secrets.token_hex(3)}.1")), epoch=1)
    for person in ("ana", "ben"):
        done = run(person, "case", "hold", case)
        assert done.code == 0, done.err
    assert {one.value.by for one in store.list(Command)} == {there.user("ana"), there.user("ben")}
    assert run("ana", "pause", "--node", "n-1", "--why", "mine").code == 0
    assert run("ben", "pause", "--node", "n-1", "--why", "no, mine").code == 0
    assert [(one.value.by, one.value.why) for one in store.list(Pause)] == [(there.user("ben"), "no, mine")]
    assert store.get(Case, case) is not None


def test_whom_a_cluster_knows_nobody_as_is_said(there: Installed) -> None:
    assert username(there.api("ana")) == there.user("ana")
