"""The chart and what is made from it: rendered by the real helm, read by Sickbay's own settings."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from sickbay import __version__
from sickbay.agent.reload import AT_START, Config
from sickbay.settings import KubernetesSettings
from sickbay.settings_load import Loaded, parse
from tests.kubernetes.deploying import Object, objects, one_of
from tools import manifests
from tools.manifests import CHART, PLAIN, ROOT

OTHERS = ("--set", "controller.rights.bareGangs=false", "--set", "controller.rights.jobs=false")


def settings_in(found: list[Object]) -> Loaded:
    """As the controller would read them."""
    return parse(one_of(found, "ConfigMap", "sickbay-config")["data"]["sickbay.toml"], "sickbay.toml", {})


def refusal(*options: str) -> str:
    with pytest.raises(RuntimeError) as refused:
        objects(*options)
    return str(refused.value)


# --- what is made is current ------------------------------------------------------------------------------------------


def test_the_plain_manifests_are_the_charts_default_render() -> None:
    """And so are the chart's copies and its schema. If this fails: tools/manifests."""
    assert [str(path.relative_to(ROOT)) for path in manifests.old()] == []


def test_the_plain_manifests_and_the_chart_make_the_same_objects() -> None:
    plain = [one for path in sorted(PLAIN.glob("*.yaml")) for one in yaml.safe_load_all(path.read_text()) if one]
    chart = objects("--include-crds", "--set", "namespace.create=true")
    assert sorted(map(repr, plain)) == sorted(map(repr, chart))


def test_kubectl_finds_nothing_but_objects_in_the_folder() -> None:
    """`kubectl apply -f deploy/kubernetes/` takes every .yaml, .yml and .json in it, and nothing below."""
    found = [path.name for path in PLAIN.iterdir() if path.suffix in (".yml", ".json")]
    assert found == []
    names = sorted(path.name for path in PLAIN.glob("*.yaml"))
    assert names[:2] == ["00-crds.yaml", "00-namespace.yaml"]  # in this order: the namespace must be there first


def test_every_value_is_in_the_schema_and_the_other_way_round() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    known = json.loads((CHART / "values.schema.json").read_text())["properties"]
    assert set(known) - {"global"} == set(values)
    for name in set(values) - {"settings", "configKeys", "imagePullSecrets", "name", "fences"}:
        assert set(known[name]["properties"]) == set(values[name]), name
    assert "surprise" in refusal("--set", "surprise=1")


def test_no_image_that_is_not_yours_is_left_after_the_documented_sed(tmp_path: Path) -> None:
    """Nor in the files that other commands of the page apply: a sweeper of another image would never start."""
    page = (ROOT / "docs/kubernetes.md").read_text()
    (sed,) = [line for line in page.splitlines() if line.startswith("sed -i")]
    shutil.copytree(PLAIN, tmp_path / "deploy/kubernetes")
    subprocess.run(["bash", "-euc", sed], cwd=tmp_path, env={**os.environ, "REGISTRY": "r.example.com/x"}, check=True)
    for path in (tmp_path / "deploy/kubernetes").rglob("*.yaml"):
        assert not re.search(r"sickbay/(agent|controller):", path.read_text()), path
    assert "r.example.com/x/controller:0.1.0" in (tmp_path / "deploy/kubernetes/jobs/sweeper.yaml").read_text()


LONG = "ip-10-100-100-100.ap-southeast-2.compute.internal"  # 64 characters with what stands before it


@pytest.mark.parametrize("node", ["gpu-1", LONG, "n" * 47 + "." + "x" * 40])
def test_a_quarantine_has_a_name_that_a_job_may_have_by_either_way(node: str) -> None:
    page = (ROOT / "docs/kubernetes.md").read_text()
    (sed,) = [line.partition(" | ")[0] for line in page.splitlines() if line.startswith("sed -e")]
    done = subprocess.run(["bash", "-euc", sed.replace("<NODE>", node)], cwd=ROOT, capture_output=True, check=True)
    plain = yaml.safe_load(done.stdout)
    (chart,) = [one for one in objects("--set", f"quarantine.node={node}") if one["kind"] == "Job"]
    assert plain == chart
    name = plain["metadata"]["name"]
    assert len(name) <= 63
    assert name[-1].isalnum()
    assert f"gpu-quarantine-{node}".startswith(name)
    assert plain["spec"]["template"]["spec"]["containers"][0]["command"][-1] == node


# --- observing only ---------------------------------------------------------------------------------------------------


def test_as_it_comes_it_only_observes() -> None:
    settings = settings_in(objects()).settings
    assert (settings.platform, settings.store, settings.policy.max_verb) == ("kubernetes", "kubernetes", "OBSERVE")
    assert settings.agent.mode == "managed"
    assert not settings.kubernetes.gate
    assert not settings.kubernetes.force
    assert not [one for one in objects() if one["kind"] == "CronJob"]


def test_settings_go_into_the_file_as_they_were_meant() -> None:
    values = {
        "settings": {
            "cluster": "east-1",
            "policy": {"max_verb": "REBOOT", "max_out": {"percent": 5, "at_least": 1}, "approval": []},
            "pool": {"gpu.large": {"policy": {"max_verb": "CORDON"}}},
            "severity_overrides": {"xid.94": "RESET"},
            "kubernetes": {"conditions": ["GPUProblem=True,60s"], "sweep_max": 3, "prefix": "gpu.example.com"},
            "notify": {"webhook_url": 'https://chat.example.com/hook?a=1&b="x"'},
        }
    }
    found = _with_values(values)
    settings = settings_in(found).settings
    assert (settings.cluster, settings.policy.max_verb, settings.policy.approval) == ("east-1", "REBOOT", ())
    assert (settings.policy.max_out.percent, settings.policy.max_out.at_least) == (5.0, 1)
    assert settings.policy_for("gpu.large").max_verb == "CORDON"
    assert settings.severity_overrides["xid.94"] == "RESET"
    assert settings.kubernetes.conditions == ("GPUProblem=True,60s",)
    assert settings.kubernetes.sweep_max == 3
    assert settings.notify.webhook_url == 'https://chat.example.com/hook?a=1&b="x"'
    policy = str(one_of(found, "ValidatingAdmissionPolicy", "sickbay-agent"))
    assert "'gpu.example.com/'" in policy
    assert "aws-samples" not in policy


def _with_values(values: dict[str, Any], *options: str) -> list[Object]:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        return objects("--values", file.name, *options)


def test_the_examples_of_the_settings_are_good_values() -> None:
    for path in sorted((ROOT / "examples").glob("*.toml")):
        tree = tomllib.loads(path.read_text())
        for own in ("platform", "store", "data_dir"):
            tree.pop(own, None)
        settings_in(_with_values({"settings": tree}))


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("settings.policy.max_verbs=REBOOT", "max_verbs"),
        ("settings.policy.max_verb=EXPLODE", "max_verb"),
        ("settings.polcy.max_verb=REBOOT", "polcy"),
        ("controller.replicas=0", "replicas"),
        ("controller.replicas=many", "replicas"),
        ("agent.maxUnavailable=0%", "maxUnavailable"),
        ("agent.image=", "image"),
        ("sweper.enabled=true", "sweper"),
        ("quarantine.node=a b", "quarantine"),
        ("networkPolicy.egressPorts[0]=70000", "egressPorts"),
        ("monitoring.interval=0s", "interval"),
        ("evidence.size=0Gi", "size"),
        ("settings.policy.waiting_s=-1", "'/settings/policy/waiting_s': minimum: got -1, want 0.1"),
        ("settings.pool.a.policy.drain_s=0", "'/settings/pool/a/policy/drain_s': minimum: got 0, want 0.1"),
        ("settings.controller.common_share=25", "common_share': maximum: got 25, want 1"),
        ("settings.policy.max_out=-1", "max_out': minimum: got -1, want 0"),
        ("settings.policy.max_out=110%", "max_out': '110%' does not match pattern"),
        ("settings.policy.max_out.percent=101", "max_out/percent': maximum: got 101, want 100"),
        ("settings.policy.max_out.share=3", "max_out': additional properties 'share' not allowed"),
        ("settings.policy.per_window.REBOOT=-1", "per_window/REBOOT': minimum: got -1, want 0"),
        ("settings.policy.per_window.EXPLODE=1", "EXPLODE"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name_before_anything_is_made(option: str, words: str) -> None:
    said = refusal("--set", option)
    assert "values don't meet the specifications of the schema" in said
    assert words in said


@pytest.mark.parametrize("key", ["controller.listen", "controller.probe_listen", "ingest.listen", "agent.listen"])
@pytest.mark.parametrize("wrong", ["0.0.0.0:70000", "0.0.0.0", "0.0.0.0:http"])
def test_a_port_that_there_is_not_is_refused_with_what_would_be_right(key: str, wrong: str) -> None:
    said = refusal("--set", f"settings.{key}={wrong},networkPolicy.ingestFrom[0].podSelector.a=b")
    assert f'"{wrong}" will not do: write an address and a port such as "0.0.0.0:9464"' in said


def test_an_evidence_store_s3_without_a_bucket_is_refused() -> None:
    assert "settings.evidence.bucket is not set" in refusal("--set", "settings.evidence.store=s3")
    good = objects("--set", "settings.evidence.store=s3,settings.evidence.bucket=acme-sickbay")
    assert settings_in(good).settings.evidence.bucket == "acme-sickbay"


def test_what_the_settings_may_be_the_chart_takes() -> None:
    """The ends of every range, by the same rules."""
    policy = {"max_out": "100%", "at_once": " 2.5 % ", "max_out_rack": {"percent": 0, "at_least": 1}, "drain_s": 0.1}
    policy |= {"per_window": {"REBOOT": 0}, "window_s": 31_536_000, "max_out_fleet": 0}
    given = {"settings": {"policy": policy, "controller": {"common_share": 1, "listen": "", "probe_listen": ":65535"}}}
    settings = settings_in(_with_values(given)).settings
    assert (settings.policy.max_out.percent, settings.policy.at_once.percent) == (100.0, 2.5)
    assert settings.controller.probe_listen == ":65535"


def test_what_the_chart_sets_by_itself_is_refused_with_where_to_say_it() -> None:
    said = refusal("--set", "settings.kubernetes.image=mine:1")
    assert "settings.kubernetes.image is set by the chart: say it by agent.image" in said


def test_agents_without_a_controller_must_be_told_so() -> None:
    assert "set settings.agent.mode to standalone" in refusal("--set", "controller.enabled=false")
    alone = objects("--set", "controller.enabled=false", "--set", "settings.agent.mode=standalone")
    assert one_of(alone, "ClusterRole", "sickbay-agent-standalone")
    assert not [one for one in alone if "controller" in one["metadata"]["name"]]


def test_the_sweeper_is_fenced_in_without_a_controller_too() -> None:
    """Its rights come with the agents; so must the policy that narrows them to our keys of a node."""
    alone = objects("--set", "controller.enabled=false", "--set", "settings.agent.mode=standalone")
    (who,) = one_of(alone, "ValidatingAdmissionPolicy", "sickbay-nodes")["spec"]["matchConditions"]
    assert "system:serviceaccount:sickbay:sickbay-sweeper" in who["expression"]
    bound = one_of(alone, "ValidatingAdmissionPolicyBinding", "sickbay-nodes")["spec"]
    assert (bound["policyName"], bound["validationActions"]) == ("sickbay-nodes", ["Deny"])


# --- what it is made of -----------------------------------------------------------------------------------------------


def test_nobody_but_the_agent_is_privileged_and_the_controller_is_nobody() -> None:
    found = objects("--set", "sweeper.enabled=true", "--set", "quarantine.node=n1")
    pods = {one["metadata"]["name"]: _pod(one) for one in found if one["kind"] in ("Deployment", "CronJob", "Job")}
    assert set(pods) == {"sickbay-controller", "sickbay-sweeper", "gpu-quarantine-n1"}
    for pod in pods.values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        locked = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        assert container["securityContext"] == locked
        assert not any("hostPath" in volume for volume in pod["volumes"])


def _pod(one: Object) -> Object:
    spec = one["spec"]["jobTemplate"]["spec"] if one["kind"] == "CronJob" else one["spec"]
    return dict(spec["template"]["spec"])


def test_no_role_has_a_wildcard_reads_a_secret_or_writes_a_nodes_status_but_the_agents() -> None:
    for role in (one for one in objects() if one["kind"] in ("Role", "ClusterRole")):
        for rule in role["rules"]:
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"]), role["metadata"]["name"]
            assert not {"secrets", "pods/exec", "serviceaccounts/token"} & set(rule["resources"])
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
            if "nodes/status" in rule["resources"]:
                assert role["metadata"]["name"] == "sickbay-agent"
            if "nodes" in rule["resources"]:
                assert not {"delete", "create", "update"} & set(rule["verbs"])


def test_rights_that_are_not_wanted_are_not_given() -> None:
    rules = one_of(objects(*OTHERS), "ClusterRole", "sickbay-controller")["rules"]
    writes = {"create", "update", "patch", "delete"}
    given = {(group, resource) for rule in rules if writes & set(rule["verbs"])
             for group in rule["apiGroups"] for resource in rule["resources"]}  # fmt: skip
    assert given == {
        ("", "nodes"), ("", "pods/eviction"), ("", "events"), ("karpenter.sh", "nodeclaims"),
        ("cluster.x-k8s.io", "machines"),
    }  # fmt: skip


def test_one_image_is_named_once_and_used_three_times() -> None:
    """The agent, the Jobs on nodes, and the policy that lets only this image touch the host."""
    image = "registry.example.com/agent@sha256:" + "a" * 64
    found = objects("--set", f"agent.image={image}")
    assert one_of(found, "DaemonSet", "sickbay-agent")["spec"]["template"]["spec"]["containers"][0]["image"] == image
    assert settings_in(found).settings.kubernetes.image == image
    variables = one_of(found, "ValidatingAdmissionPolicy", "sickbay-node-jobs")["spec"]["variables"]
    assert variables[0] == {"name": "image", "expression": f"'{image}'"}


@pytest.mark.parametrize(
    ("named", "pulled"),
    [
        ("registry.example.com:5000/agent", f"registry.example.com:5000/agent:{__version__}"),
        ("registry.example.com:5000/agent:7", "registry.example.com:5000/agent:7"),
    ],
)
def test_an_image_without_a_tag_is_of_the_version_that_the_chart_is_for(named: str, pulled: str) -> None:
    found = objects("--set", f"agent.image={named}", "--set", f"controller.image={named}")
    pods = [_pod(one_of(found, *one)) for one in (("DaemonSet", "sickbay-agent"), ("Deployment", "sickbay-controller"))]
    assert [pod["containers"][0]["image"] for pod in pods] == [pulled, pulled]


def test_no_image_is_whatever_is_latest() -> None:
    made = [*PLAIN.rglob("*.yaml"), *CHART.rglob("*.yaml")]
    assert [str(path) for path in made if ":latest" in path.read_text()] == []
    assert KubernetesSettings().image == f"sickbay/agent:{__version__}"


# --- who reaches it ---------------------------------------------------------------------------------------------------

INGEST = ("--set", "settings.ingest.listen=0.0.0.0:9470")
NODES = '[{"ipBlock": {"cidr": "10.0.0.0/16"}}]'


def ingress(*options: str) -> list[Object]:
    return list(one_of(objects(*options), "NetworkPolicy", "sickbay-controller")["spec"].get("ingress", []))


def test_probes_are_answered_at_a_port_that_no_stranger_reaches() -> None:
    found = objects()
    (container,) = _pod(one_of(found, "Deployment", "sickbay-controller"))["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    probed = {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")}
    assert probed == {"probes"}
    assert settings_in(found).settings.controller.probe_listen == f"0.0.0.0:{ports['probes']}"
    assert ports["probes"] not in [port["port"] for rule in ingress() for port in rule["ports"]]
    assert [port["name"] for port in one_of(found, "Service", "sickbay-controller")["spec"]["ports"]] == ["metrics"]


def test_without_a_port_of_their_own_probes_ask_where_metrics_are() -> None:
    found = objects("--set", "settings.controller.probe_listen=")
    (container,) = _pod(one_of(found, "Deployment", "sickbay-controller"))["containers"]
    assert container["livenessProbe"]["httpGet"]["port"] == "metrics"


def test_who_may_ask_for_metrics_and_who_may_report_are_said_apart() -> None:
    prometheus = '[{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]'
    said = ("--set-json", f"networkPolicy.metricsFrom={prometheus}", "--set-json", f"networkPolicy.ingestFrom={NODES}")
    metrics, reports = ingress(*INGEST, *said)
    assert ([port["port"] for port in metrics["ports"]], metrics["from"]) == ([9465], json.loads(prometheus))
    assert ([port["port"] for port in reports["ports"]], reports["from"]) == ([9470], json.loads(NODES))


def test_a_port_for_reports_is_refused_until_it_is_said_from_whom() -> None:
    said = refusal(*INGEST)
    assert "settings.ingest.listen opens a port for reports, and nothing says who may reach it" in said
    assert "set networkPolicy.ingestFrom" in said
    assert objects(*INGEST, "--set", "networkPolicy.enabled=false")


def test_who_listens_nowhere_is_reached_by_nobody() -> None:
    assert ingress("--set", "settings.controller.listen=") == []


def test_every_image_is_pulled_with_the_secrets_that_were_named() -> None:
    """Our Jobs on nodes name none themselves: their account carries them."""
    named = [{"name": "one"}, {"name": "two"}]
    many = ("--set", "imagePullSecrets={one,two}", "--set", "sweeper.enabled=true", "--set", "quarantine.node=n1")
    found = objects(*many)
    pods = [_pod(one) for one in found if one["kind"] in ("DaemonSet", "Deployment", "CronJob", "Job")]
    assert [pod["imagePullSecrets"] for pod in pods] == [named] * 4
    assert one_of(found, "ServiceAccount", "sickbay-node-job")["imagePullSecrets"] == named


def test_a_node_selector_and_the_gpu_selector_agree_as_they_come() -> None:
    found = objects()
    selector = one_of(found, "DaemonSet", "sickbay-agent")["spec"]["template"]["spec"]["nodeSelector"]
    assert settings_in(found).settings.kubernetes.gpu_selector == ",".join(f"{k}={v}" for k, v in selector.items())


def test_new_settings_start_the_controller_anew_and_leave_agents_alone() -> None:
    """An agent reads its settings again each cycle; a rollout over the whole fleet for that would be waste."""
    before, after = objects(), objects("--set", "settings.policy.max_verb=CORDON")
    agent, controller = ("DaemonSet", "sickbay-agent"), ("Deployment", "sickbay-controller")
    assert one_of(before, *agent) == one_of(after, *agent)
    assert one_of(before, *controller)["spec"]["template"] != one_of(after, *controller)["spec"]["template"]


VALUES = {"publishers": "{kubernetes,stdout}", "spool_mb": "7"}  # others are words


@pytest.mark.parametrize("key", [*(f"settings.agent.{key}" for key in AT_START), "settings.kubernetes.prefix"])
def test_settings_that_an_agent_takes_at_its_start_only_start_it_anew(key: str) -> None:
    value = VALUES.get(key.rpartition(".")[2], "127.0.0.1:9999")
    agent = ("DaemonSet", "sickbay-agent")
    assert _annotations(one_of(objects(), *agent)) != _annotations(one_of(objects("--set", f"{key}={value}"), *agent))


def test_monitoring_opens_the_agents_door_at_once_and_keeps_annotations_of_others() -> None:
    """It changes where agents listen, which only a start can."""
    given = ("--set-string", "agent.podAnnotations.mine=1")
    before, after = objects(*given), objects(*given, "--set", "monitoring.enabled=true")
    old, new = (_annotations(one_of(found, "DaemonSet", "sickbay-agent")) for found in (before, after))
    assert old["sickbay.dev/settings"] != new["sickbay.dev/settings"]
    assert old["mine"] == new["mine"] == "1"


def _annotations(one: Object) -> dict[str, str]:
    return dict(one["spec"]["template"]["metadata"]["annotations"])


def test_monitoring_is_made_only_where_the_cluster_knows_it() -> None:
    on = ("--set", "monitoring.enabled=true")
    assert not [one for one in objects(*on) if one["apiVersion"].startswith("monitoring")]
    known = objects(*on, "--api-versions", "monitoring.coreos.com/v1", "--set", "monitoring.labels.release=prom")
    made = [one for one in known if one["apiVersion"].startswith("monitoring")]
    assert {"ServiceMonitor", "PodMonitor"} <= {one["kind"] for one in made}
    assert all(one["metadata"]["labels"]["release"] == "prom" for one in made)
    ports = one_of(known, "Service", "sickbay-controller")["spec"]["ports"]
    (asked,) = one_of(known, "ServiceMonitor", "sickbay-controller")["spec"]["endpoints"]
    assert asked["port"] in [port["name"] for port in ports]


def test_every_rule_and_dashboard_of_the_repository_is_in_the_chart() -> None:
    on = ("--set", "monitoring.enabled=true", "--set", "monitoring.dashboards=true")
    found = objects(*on, "--api-versions", "monitoring.coreos.com/v1")
    rules = [one for one in found if one["kind"] == "PrometheusRule"]
    assert len(rules) == len(list((ROOT / "deploy/prometheus").glob("*.y*ml")))
    assert all(one["spec"]["groups"] for one in rules)
    boards = [one for one in found if one["kind"] == "ConfigMap" and "dashboard" in one["metadata"]["name"]]
    assert len(boards) == len(list((ROOT / "deploy/grafana").glob("*.json")))


def test_original_keys_of_the_config_map_are_taken_over() -> None:
    found = objects("--set-string", "configKeys.CHECK_INTERVAL=120")
    assert one_of(found, "ConfigMap", "sickbay-config")["data"]["CHECK_INTERVAL"] == "120"


def test_an_agent_reads_the_mounted_config_map(tmp_path: Path) -> None:
    """Mounted as a folder: sickbay.toml, and the original suite's keys beside it."""
    found = objects("--set-string", "configKeys.CHECK_INTERVAL=120", "--set", "monitoring.enabled=true")
    for name, text in one_of(found, "ConfigMap", "sickbay-config")["data"].items():
        (tmp_path / name).write_text(text)
    config = Config(str(tmp_path), {})
    agent = config.settings.agent
    assert (agent.check_interval_s, agent.publishers, agent.host_root) == (120.0, ("kubernetes",), "/host")
    assert agent.listen == "0.0.0.0:9464"  # Prometheus comes from outside of the node
    assert config.remarks == ()


def test_a_shared_file_system_with_the_steps_of_jobs_can_be_mounted_into_the_controller() -> None:
    volume = '[{"name": "fsx", "persistentVolumeClaim": {"claimName": "fsx", "readOnly": true}}]'
    mount = '[{"name": "fsx", "mountPath": "/fsx", "readOnly": true}]'
    found = objects(
        "--set-json", f"controller.extraVolumes={volume}", "--set-json", f"controller.extraVolumeMounts={mount}",
        "--set", "settings.kubernetes.progress_root=/fsx",
    )  # fmt: skip
    spec = one_of(found, "Deployment", "sickbay-controller")["spec"]["template"]["spec"]
    assert spec["volumes"][-1] == json.loads(volume)[0]
    assert spec["containers"][0]["volumeMounts"][-1] == json.loads(mount)[0]
    assert "progress_root" in one_of(found, "ConfigMap", "sickbay-config")["data"]["sickbay.toml"]


def test_helm_has_nothing_to_say_against_it() -> None:
    assert "0 chart(s) failed" in manifests.helm("lint", "--strict", str(CHART))


def test_an_eks_role_is_an_annotation_of_the_controllers_account_alone() -> None:
    arn = "arn:aws:iam::123456789012:role/sickbay"
    found = objects("--set-string", f"controller.serviceAccountAnnotations.eks\\.amazonaws\\.com/role-arn={arn}")
    accounts = [one for one in found if one["kind"] == "ServiceAccount"]
    assert [one["metadata"]["name"] for one in accounts if "annotations" in one["metadata"]] == ["sickbay-controller"]


def test_no_address_of_a_registry_or_machine_is_in_what_is_deployed() -> None:
    for path in (*CHART.rglob("*"), *PLAIN.rglob("*"), ROOT / "Dockerfile"):
        if Path(path).is_file():
            assert not re.search(r"(/home/|/root/|\.ecr\.|localhost)", path.read_text()), path
