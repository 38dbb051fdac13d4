"""How we prove who we are: in a pod, by a kubeconfig, by a plugin; and what is said when we cannot."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from sickbay.errors import ApiError, UserError
from sickbay.kube import access
from sickbay.kube.access import Access, find_access, from_kubeconfig, from_pod
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from testbed.cluster import Cluster


def _ask_who(way: Access) -> str:
    """The API server's own answer: SelfSubjectReview."""
    api = Api(way)
    try:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        said = json.loads(api.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body))
    finally:
        api.close()
    return str(said["status"]["userInfo"]["username"])


def _service_account(cluster: Cluster, namespace: str) -> str:
    """A real token of a real service account."""
    api = cluster.api()
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.create(accounts, {"metadata": {"name": "robot"}}, Anything)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    return str(json.loads(api.request("POST", f"{accounts}/robot/token", asked))["status"]["token"])


def _config(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(cluster.kubeconfig.read_text())
    return found


def _with_user(cluster: Cluster, folder: Path, user: dict[str, Any]) -> Path:
    config = _config(cluster)
    config["users"][0]["user"] = user
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_pod_uses_its_service_account(
    cluster: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = from_kubeconfig(cluster.kubeconfig)
    (tmp_path / "token").write_text(_service_account(cluster, namespace) + "\n")
    (tmp_path / "ca.crt").write_bytes(
        base64.b64decode(_config(cluster)["clusters"][0]["cluster"]["certificate-authority-data"])
    )
    (tmp_path / "namespace").write_text(namespace)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", way.host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(way.port))
    monkeypatch.setattr(access, "IN_POD", tmp_path)
    ours = from_pod(tmp_path)
    assert ours.namespace == namespace
    assert _ask_who(ours) == f"system:serviceaccount:{namespace}:robot"
    assert find_access().namespace == namespace


def test_a_rotated_token_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("first")
    token = access.TokenFile(tmp_path / "token")
    assert token() == "first"
    (tmp_path / "token").write_text("second\n")
    assert token() == "first"
    monkeypatch.setattr(access, "REREAD_S", 0.0)
    assert token() == "second"


def test_a_rotated_ca_is_believed_by_the_next_connection(cluster: Cluster, tmp_path: Path) -> None:
    config = _config(cluster)
    group = config["clusters"][0]["cluster"]
    ours, authority = base64.b64decode(group.pop("certificate-authority-data")), tmp_path / "ca.crt"
    group["certificate-authority"] = str(authority)
    authority.write_bytes(base64.b64decode(config["users"][0]["user"]["client-certificate-data"]))  # not who signed
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    way = from_kubeconfig(tmp_path / "config")
    with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
        _ask_who(way)
    authority.write_text("half a certi")
    with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
        _ask_who(way)
    authority.write_bytes(ours)
    assert _ask_who(way)


def test_a_kubeconfigs_certificate_and_a_named_context(cluster: Cluster, tmp_path: Path) -> None:
    assert _ask_who(from_kubeconfig(cluster.kubeconfig)) == "admin"
    config = _config(cluster)
    config["contexts"].append({"name": "other", "context": {**config["contexts"][0]["context"], "namespace": "train"}})
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    assert from_kubeconfig(path).namespace == "default"
    assert from_kubeconfig(path, "other").namespace == "train"


def test_a_kubeconfigs_token_and_token_file(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    token = _service_account(cluster, namespace)
    robot = f"system:serviceaccount:{namespace}:robot"
    assert _ask_who(from_kubeconfig(_with_user(cluster, tmp_path, {"token": token}))) == robot
    (tmp_path / "robot.token").write_text(token)
    assert _ask_who(from_kubeconfig(_with_user(cluster, tmp_path, {"tokenFile": "robot.token"}))) == robot


PLUGIN = """#!/bin/sh
echo run >> "$RUNS"
printf '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "%s"}}' "$TOKEN"
"""


def _plugin(folder: Path, script: str, **env: str) -> dict[str, Any]:
    path = folder / "get-token"
    path.write_text(script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    named = [{"name": name, "value": value} for name, value in env.items()]
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "env": named}}


def test_a_plugin_such_as_aws_eks_get_token_is_asked_once_until_its_token_ends(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    user = _plugin(tmp_path, PLUGIN, TOKEN=_service_account(cluster, namespace), RUNS=str(runs))
    way = from_kubeconfig(_with_user(cluster, tmp_path, user))
    for _ in range(2):
        assert _ask_who(way) == f"system:serviceaccount:{namespace}:robot"
    assert runs.read_text() == "run\n"


def test_a_plugins_token_is_renewed_before_it_ends(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    way = from_kubeconfig(_with_user(cluster, tmp_path, _plugin(tmp_path, PLUGIN, TOKEN="t", RUNS=str(runs))))
    way.token()
    monkeypatch.setattr(access, "EARLY_S", 3600.0)
    way.token()
    assert runs.read_text() == "run\nrun\n"


def test_a_plugin_that_fails_is_told_in_its_own_words(cluster: Cluster, tmp_path: Path) -> None:
    user = _plugin(tmp_path, "#!/bin/sh\necho 'the SSO session has expired' >&2\nexit 255\n")
    way = from_kubeconfig(_with_user(cluster, tmp_path, user))
    with pytest.raises(UserError, match=r"get-token gave no credentials: the SSO session has expired"):
        way.token()
    with pytest.raises(UserError, match="gave no credentials"):
        from_kubeconfig(_with_user(cluster, tmp_path, {"exec": {"command": "no-such-plugin"}})).token()


def test_no_credentials_are_an_answer_not_a_guess(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="401 Unauthorized") as told:
        _ask_who(from_kubeconfig(_with_user(cluster, tmp_path, {"token": "wrong"})))
    assert told.value.refused
    assert "wrong" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("just words", "this is no kubeconfig"),
        ("a: [", "this is no kubeconfig"),
        ("current-context: x\ncontexts: []", r"there is no context named 'x'; known: none"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: c}}]", r"there is no cluster named 'c'"),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
            "clusters: [{name: c, cluster: {server: 'http://h'}}]\nusers: [{name: u, user: {}}]",
            "has no https server address",
        ),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
            "clusters: [{name: c, cluster: {server: 'https://h', certificate-authority: gone.crt}}]\n"
            "users: [{name: u, user: {}}]",
            r"gone\.crt: named by the kubeconfig as certificate-authority, cannot be read",
        ),
    ],
)
def test_a_kubeconfig_that_is_wrong_is_said_to_be(tmp_path: Path, text: str, wrong: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(UserError, match=wrong):
        from_kubeconfig(path)


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"nowhere: cannot read the kubeconfig .*set KUBECONFIG or"):
        find_access()
