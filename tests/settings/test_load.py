"""One file, the environment, and where each value came from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sickbay.model import Verb
from sickbay.settings import ALL_VERBS, Limit, Policy, Settings
from sickbay.settings_load import flat, load, parse


def policy_of(text: str, **environ: str) -> Policy:
    return parse(text, "x.toml", environ).settings.policy


def test_nothing_given_is_the_defaults() -> None:
    loaded = load(None, {})
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}


def test_every_key_has_a_value_and_an_origin() -> None:
    loaded = parse("[pool.a.policy]\nevict = false\n", "x.toml")
    assert flat(loaded.settings).keys() == loaded.origins.keys()
    fields = {field.name for field in dataclasses.fields(Policy)}
    assert {key.removeprefix("policy.") for key in loaded.origins if key.startswith("policy.")} == fields


def test_the_file_wins_over_defaults_and_says_its_line() -> None:
    loaded = parse('cluster = "east"\n\n[policy] # careful\nevict = false\nmax_out.count = 3\n', "x.toml")
    assert loaded.settings.cluster == "east"
    assert loaded.settings.policy.evict is False
    assert loaded.origins["cluster"] == "x.toml:1"
    assert loaded.origins["policy.evict"] == "x.toml:4"
    assert loaded.origins["policy.max_out"] == "x.toml:5"
    assert loaded.origins["policy.max_verb"] == "default"


def test_a_variable_wins_over_the_file_and_ours_over_an_originals() -> None:
    text = "[agent]\ncheck_interval_s = 100\nhost_metrics_s = 10\n"
    environ = {"CHECK_INTERVAL": "200", "MONITOR_INTERVAL": "20", "SICKBAY_AGENT__HOST_METRICS_S": "30"}
    loaded = parse(text, "x.toml", environ)
    assert loaded.settings.agent.check_interval_s == 200
    assert loaded.settings.agent.host_metrics_s == 30
    assert loaded.origins["agent.check_interval_s"] == "environment CHECK_INTERVAL"
    assert loaded.origins["agent.host_metrics_s"] == "environment SICKBAY_AGENT__HOST_METRICS_S"


def test_an_empty_variable_is_not_set() -> None:
    assert load(None, {"WEBHOOK_URL": "", "SICKBAY_CLUSTER": " "}).settings == Settings()


def test_sickbay_config_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('cluster = "west"\n')
    assert load(None, {"SICKBAY_CONFIG": str(path)}).settings.cluster == "west"


# --- pools ------------------------------------------------------------------------------------------------------------

POOLS = """
[pool.train-a.policy]
max_verb = "REBOOT"
max_out = { count = 7 }
[policy]
max_verb = "CORDON"
drain_s = 60
"""


def test_a_pool_takes_from_policy_what_it_leaves_out_whatever_the_order_in_the_file() -> None:
    loaded = parse(POOLS, "x.toml")
    pool = loaded.settings.policy_for("train-a")
    assert (pool.max_verb, pool.drain_s, pool.max_out) == ("REBOOT", 60, Limit(count=7, percent=10, at_least=2))
    assert loaded.settings.policy_for("other") == loaded.settings.policy
    assert loaded.origins["pool.train-a.policy.max_verb"] == "x.toml:3"
    assert loaded.origins["pool.train-a.policy.drain_s"] == "x.toml:7, by [policy]"
    assert loaded.origins["pool.train-a.policy.evict"] == "default"


def test_a_pool_inherits_the_environments_policy_too() -> None:
    settings = parse(POOLS, "x.toml", {"SICKBAY_POLICY__EVICT": "off"}).settings
    assert settings.policy_for("train-a").evict is False


def test_a_pools_key_can_be_set_by_a_variable() -> None:
    settings = parse(POOLS, "x.toml", {"SICKBAY_POOL__TRAIN_A__POLICY__EVICT": "no"}).settings
    assert settings.pools["train-a"].evict is False
    assert settings.policy.evict is True


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Policy)])
def test_every_policy_key_can_be_overridden_per_pool(field: str) -> None:
    examples = {
        "bool": "false",
        "str": '"CORDON"',
        "Limit": "3",
        "float": "9",
        "int": "9",
        "tuple[str, ...]": "[]",
        "Mapping[str, int]": "{ REBOOT = 9 }",
    }
    kind = next(f.type for f in dataclasses.fields(Policy) if f.name == field)
    settings = parse(f"[pool.p.policy]\n{field} = {examples[str(kind)]}\n").settings
    assert settings.policy == Policy()
    pool, names = settings.pools["p"], [one.name for one in dataclasses.fields(Policy)]
    changed = [name for name in names if getattr(pool, name) != getattr(Policy(), name)]
    assert changed == ([field] if field != "windows" else [])  # no windows is the default


# --- shapes of values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("4", Limit(count=4, at_least=0)),
        ("0", Limit(count=0, at_least=0)),
        ('"12.5%"', Limit(percent=12.5)),
        ("{ count = 4 }", Limit(count=4, percent=10, at_least=2)),
        ("{ percent = 20, at_least = 0 }", Limit(percent=20, at_least=0)),
    ],
)
def test_a_limit_has_three_spellings(text: str, limit: Limit) -> None:
    assert policy_of(f"[policy]\nmax_out = {text}").max_out == limit


@pytest.mark.parametrize(
    ("variable", "text", "limit"),
    [
        ("SICKBAY_POLICY__MAX_OUT", "4", Limit(count=4, at_least=0)),
        ("SICKBAY_POLICY__MAX_OUT", "10%", Limit(percent=10)),
        ("SICKBAY_POLICY__MAX_OUT", "{ count = 4 }", Limit(count=4, percent=10, at_least=2)),
        ("SICKBAY_POLICY__MAX_OUT__COUNT", "4", Limit(count=4, percent=10, at_least=2)),
    ],
)
def test_a_limit_can_be_set_by_a_variable(variable: str, text: str, limit: Limit) -> None:
    assert policy_of("", **{variable: text}).max_out == limit


def test_a_table_of_verbs_keeps_what_it_leaves_out() -> None:
    assert policy_of("[policy]\nper_window = { REBOOT = 1 }").per_window == {**Policy().per_window, "REBOOT": 1}
    assert policy_of("", SICKBAY_POLICY__PER_WINDOW__REBOOT="2").per_window["REBOOT"] == 2


def test_ceilings_are_verbs_and_keep_other_sources() -> None:
    ceilings = parse('[ceilings]\nllm = []\nwebhook = ["VERIFY"]\n').settings.ceilings
    assert ceilings["llm"] == frozenset()
    assert ceilings["webhook"] == frozenset({Verb.VERIFY})
    assert ceilings["agent"] == ALL_VERBS
    assert load(None, {"SICKBAY_CEILINGS__WEBHOOK": "cordon, verify"}).settings.ceilings["webhook"] == frozenset(
        {Verb.CORDON, Verb.VERIFY}
    )


def test_codes_may_be_written_with_or_without_quotes_and_isolate_is_understood() -> None:
    text = '[severity_overrides]\n"xid.94" = "RESET"\nxid.95 = "ISOLATE"\n'
    assert parse(text).settings.severity_overrides == {"xid.94": "RESET", "xid.95": "REPLACE"}


def test_lists_can_be_set_by_variables() -> None:
    windows = "Sat 01:00-02:00,03:00-04:00"
    policy = policy_of("", SICKBAY_POLICY__APPROVAL="REBOOT, REPLACE", SICKBAY_POLICY__WINDOWS=windows)
    assert policy.approval == ("REBOOT", "REPLACE")
    assert policy.windows == ("Sat 01:00-02:00", "03:00-04:00")


# --- the originals' names ---------------------------------------------------------------------------------------------

TOPIC = "arn:aws:sns:us-east-1:123456789012:t"
TOPIC_CN = "arn:aws-cn:sns:cn-north-1:123456789012:t"
ORIGINALS = {
    "MONITOR_INTERVAL": ("31", "agent.host_metrics_s", 31.0),
    "CHECK_INTERVAL": ("301", "agent.check_interval_s", 301.0),
    "DCGM_L2_INTERVAL": ("21601", "agent.dcgm_l2_interval_s", 21601.0),
    "CHECKS_LIGHTWEIGHT": ("0 1 topology", "agent.light_checks", ("nvidia-smi", "dcgm-l2", "topology")),
    "CHECK_TIMEOUT": ("901", "agent.check_timeout_s", 901.0),
    "DCGM_TIMEOUT": ("902", "agent.dcgm_timeout_s", 902.0),
    "DCGM_L4_TIMEOUT": ("9001", "agent.dcgm_l4_timeout_s", 9001.0),
    "NCCL_TIMEOUT": ("1801", "agent.nccl_timeout_s", 1801.0),
    "EFA_TEST_TIMEOUT": ("181", "agent.efa_timeout_s", 181.0),
    "KERNEL_LOG_LINES": ("4001", "agent.kernel_log_lines", 4001),
    "MAX_RETIRED_PAGES_SBE": ("61", "agent.max_retired_pages_sbe", 61),
    "ENABLE_TAINT": ("false", "agent.taint", False),
    "ENABLE_LABEL": ("0", "agent.label", False),
    "NODE_NAME": ("ip-10-0-0-1", "agent.node_name", "ip-10-0-0-1"),
    "CLUSTER_NAME": ("prod", "cluster", "prod"),
    "ECS_CLUSTER_NAME": ("prod", "cluster", "prod"),
    "LOG_LEVEL": ("debug", "log_level", "DEBUG"),
    "WEBHOOK_URL": ("http://localhost:8080/hook", "notify.webhook_url", "http://localhost:8080/hook"),
    "SNS_TOPIC_ARN": (TOPIC, "notify.sns_topic_arn", TOPIC),
    "SNS_ARN": (TOPIC_CN, "notify.sns_topic_arn", TOPIC_CN),
    "NVLINK_DEFAULT": ("REBOOT", "severity_overrides", {"xid.74": "REBOOT"}),
    "NVLINK5_DEFAULT": ("reset", "severity_overrides", {f"xid.{n}": "RESET" for n in range(144, 151)}),
    "STRICT_PSHC": ("1", "severity_overrides", {"xid.165": "REPLACE"}),
}


@pytest.mark.parametrize("name", sorted(ORIGINALS))
def test_an_originals_variable_works_as_an_alias(name: str) -> None:
    text, key, value = ORIGINALS[name]
    loaded = load(None, {name: text})
    assert flat(loaded.settings)[key] == value
    assert loaded.origins[key] == f"environment {name}"


def test_every_alias_is_tested_above() -> None:
    from sickbay.settings_env import ALIASES, SEVERITY_ALIASES

    assert {*ALIASES, *SEVERITY_ALIASES} == {*ORIGINALS}


def test_a_switch_that_is_off_leaves_the_catalog_alone() -> None:
    assert load(None, {"STRICT_PSHC": "0"}).settings.severity_overrides == {}
