"""An admission policy of somebody else that denies one of our writes: a change freeze, a security team, a quota."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.platforms.kubernetes.node_jobs import KIND
from sickbay.platforms.kubernetes.site import Site
from testbed.waiting import until

BASE = "/apis/admissionregistration.k8s.io/v1"
WORDS = "change freeze CHG-42"


@contextmanager
def denied(
    api: Api, name: str, rule: dict[str, Any], unless: str, attempt: Callable[[], object], **match: Any
) -> Iterator[None]:
    """While it lasts, what `rule` matches is denied `unless` (CEL) holds. `attempt`, a dry run, shows it in force."""
    spec = {
        "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule], **match},
        "validations": [{"expression": unless, "message": WORDS}],
    }  # fmt: skip
    bind = {"policyName": name, "validationActions": ["Deny"]}
    api.create(f"{BASE}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec}, Anything)
    api.create(f"{BASE}/validatingadmissionpolicybindings", {"metadata": {"name": name}, "spec": bind}, Anything)
    try:
        until(lambda: _says_no(attempt), "the policy is in force", 60.0)
        yield
    finally:
        api.delete(f"{BASE}/validatingadmissionpolicybindings/{name}")
        api.delete(f"{BASE}/validatingadmissionpolicies/{name}")


def _says_no(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except ApiError as error:
        return WORDS in error.said
    return False


@contextmanager
def no_jobs(api: Api, namespace: str, kind: str) -> Iterator[None]:
    """Our Jobs of this kind (check, reset, reboot …) are denied in this namespace."""
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
    unless = f"!has(object.metadata.labels) || object.metadata.labels[?'{KIND}'].orValue('') != '{kind}'"
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
    body = {"metadata": {"name": "attempt", "labels": {KIND: kind}}, "spec": {"template": {"spec": pod}}}
    where = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    with denied(
        api, f"no-{kind}-{namespace}", rule, unless,
        lambda: api.create(names.jobs(namespace), body, Anything, dryRun="All"), namespaceSelector=where,
    ):  # fmt: skip
        yield


@contextmanager
def no_update(api: Api, node: str, unless: str, change: dict[str, Any]) -> Iterator[None]:
    """Writes to this node are denied `unless` (CEL) it holds; `change` is one that is."""
    rule = {
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"],
        "resourceNames": [node],
    }  # fmt: skip
    with denied(api, f"no-{node}", rule, unless, lambda: api.patch(names.node(node), change, Anything, dryRun="All")):
        yield


@contextmanager
def refusing_jobs(site: Site, by: str) -> Iterator[None]:
    """No Job is let in: "a quota" is full, or "a webhook that is away" does not answer."""
    name = f"no-jobs-{site.settings.namespace}"
    if by == "a quota":
        path, body = f"/api/v1/namespaces/{site.settings.namespace}/resourcequotas", _full(name)
    else:
        path, body = f"{BASE}/validatingwebhookconfigurations", _away(name, site.settings.namespace)
    site.api.create(path, body, Anything)
    try:
        yield
    finally:
        site.api.delete(f"{path}/{name}")


def _full(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"hard": {"count/jobs.batch": "0"}}}


def _away(name: str, namespace: str) -> dict[str, Any]:
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
    hook = {
        "name": "policy.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}, "failurePolicy": "Fail",
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
    }  # fmt: skip
    return {"metadata": {"name": name}, "webhooks": [hook]}
