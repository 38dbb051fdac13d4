"""Alerts and recording rules, run by the real promtool on made-up series: each fires when it should, only then."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.prometheus import RULES, promtool
from tools import rules as operator

ROOT = RULES.parents[1]
FILES = sorted(RULES.glob("*.yaml"))
# With the labels that the Prometheus operator puts on whatever it scrapes, too.
WHO = 'job="sickbay", instance="a", namespace="sickbay", pod="c-0", service="c", endpoint="metrics", container="x"'
INFO = {f'sickbay_controller_info{{{WHO}, cluster="east"}}': "1x60"}

Series = dict[str, str]

# alert -> (when it is looked at, series that make it fire, series that must not). A step is a minute; where hours are
# looked at it is half an hour.
ALERTS: dict[str, tuple[str, Series, Series]] = {
    "SickbayControllerDown": ("10m", {"up": "1x20"}, INFO),
    "SickbayNoLeader": (
        "5m",
        {**INFO, f"sickbay_leading{{{WHO}}}": "0x20"},
        {**INFO, f"sickbay_leading{{{WHO}}}": "0x20", 'sickbay_leading{job="sickbay", instance="b"}': "1x20",
         'sickbay_controller_info{job="sickbay", instance="b", cluster="east"}': "1x20"},
    ),
    "SickbayLeadFlapping": (
        "60m",
        {**INFO, f"sickbay_leads_total{{{WHO}}}": "0+1x60"},
        {**INFO, f"sickbay_leads_total{{{WHO}}}": "1x30 2x30"},
    ),
    "SickbayLoopStuck": (
        "20m",
        {f"sickbay_leading{{{WHO}}}": "1x30", f"sickbay_pass_seconds_count{{{WHO}}}": "7x30"},
        {f"sickbay_leading{{{WHO}}}": "1x30", f"sickbay_pass_seconds_count{{{WHO}}}": "0+1x30"},
    ),
    "SickbayPassesBreak": (
        "15m",
        {f'sickbay_mishaps_total{{{WHO}, what="store"}}': "0+1x20"},
        {f'sickbay_mishaps_total{{{WHO}, what="lead lost"}}': "0+1x20"},
    ),
    "SickbayPassesSlow": (
        "40m",
        {f'sickbay_pass_seconds_bucket{{{WHO}, le="2.5"}}': "0x60",
         f'sickbay_pass_seconds_bucket{{{WHO}, le="10"}}': "0+9x60",
         f'sickbay_pass_seconds_bucket{{{WHO}, le="+Inf"}}': "0+9x60"},
        {f'sickbay_pass_seconds_bucket{{{WHO}, le="2.5"}}': "0+9x60",
         f'sickbay_pass_seconds_bucket{{{WHO}, le="+Inf"}}': "0+9x60"},
    ),
    "SickbayWatchStale": (
        "10m",
        {f"sickbay_watch_age_seconds{{{WHO}}}": "0+60x20"},
        {f"sickbay_watch_age_seconds{{{WHO}}}": "60 5 60 200 5 60 5 60 5 60 5"},
    ),
    "SickbayStoreFailing": (
        "20m",
        {f'sickbay_store_errors_total{{{WHO}, what="failed"}}': "0+1x30"},
        {f'sickbay_store_errors_total{{{WHO}, what="stale"}}': "0+1x30",
         f'sickbay_store_errors_total{{{WHO}, what="failed"}}': "0x30"},
    ),
    "SickbayApiErrors": (
        "30m",
        {f'sickbay_api_requests_total{{{WHO}, verb="GET", status="200"}}': "0+80x40",
         f'sickbay_api_requests_total{{{WHO}, verb="GET", status="none"}}': "0+20x40"},
        {f'sickbay_api_requests_total{{{WHO}, verb="GET", status="200"}}': "0+80x40",
         f'sickbay_api_requests_total{{{WHO}, verb="PUT", status="409"}}': "0+20x40"},
    ),
    "SickbayRightsMissing": (
        "25m",
        {f'sickbay_api_requests_total{{{WHO}, verb="PATCH", status="403"}}': "0+1x30"},
        {f'sickbay_api_requests_total{{{WHO}, verb="PATCH", status="403"}}': "3x30",
         f'sickbay_api_requests_total{{{WHO}, verb="PATCH", status="422"}}': "0+1x30"},
    ),
    "SickbayNoticesFail": (
        "60m",
        {f'sickbay_notices_total{{{WHO}, notifier="sns", outcome="later"}}': "0+1x60",
         f'sickbay_notices_total{{{WHO}, notifier="log", outcome="delivered"}}': "0+1x60"},
        {f'sickbay_notices_total{{{WHO}, notifier="sns", outcome="later"}}': "0+1x60",
         f'sickbay_notices_total{{{WHO}, notifier="sns", outcome="delivered"}}': "0+1x60"},
    ),
    "SickbayCaseEscalated": (
        "5m",
        {'sickbay_cases{kind="node", phase="ESCALATED", fault="gpu-lost", pool="p5"}': "2x20"},
        {'sickbay_cases{kind="common-cause", phase="ESCALATED", fault="gpu-lost", pool=""}': "1x20",
         'sickbay_cases{kind="node", phase="DRAINING", fault="gpu-lost", pool="p5"}': "1x20"},
    ),
    "SickbayCaseForgotten": (
        "5m",
        {'sickbay_case_oldest_seconds{phase="ESCALATED", pool="p5"}': "90000x20"},
        {'sickbay_case_oldest_seconds{phase="HOLDING", pool="p5"}': "90000x20"},
    ),
    "SickbayCommonCause": (
        "5m",
        {'sickbay_cases{kind="common-cause", phase="ESCALATED", fault="gpu-lost", pool=""}': "1x20"},
        {'sickbay_cases{kind="node", phase="ESCALATED", fault="gpu-lost", pool="p5"}': "9x20"},
    ),
    "SickbayApprovalAwaited": (
        "70m",
        {'sickbay_cases_waiting{reason="approval", pool="p5"}': "1x80"},
        {'sickbay_cases_waiting{reason="approval", pool="p5"}': "1x30 0x50"},
    ),
    "SickbayBreakerOpen": ("5m", {f"sickbay_breaker_open{{{WHO}}}": "1x9"}, {f"sickbay_breaker_open{{{WHO}}}": "0x9"}),
    "SickbayLimitFull": (
        "70m",
        {f'sickbay_limit_used{{{WHO}, scope="pool:p5", limit="max_out"}}': "6x80",
         f'sickbay_limit_allowed{{{WHO}, scope="pool:p5", limit="max_out"}}': "6x80",
         f'sickbay_cases_waiting{{{WHO}, reason="max-out", pool="p5"}}': "1x80"},
        {f'sickbay_limit_used{{{WHO}, scope="pool:p5", limit="max_out"}}': "6x80",  # full, and nobody waits
         f'sickbay_limit_allowed{{{WHO}, scope="pool:p5", limit="max_out"}}': "6x80"},
    ),
    "SickbayDrainStuck": (
        "5m",
        {'sickbay_case_oldest_seconds{phase="DRAINING", pool="p5"}': "1600x9"},
        {'sickbay_case_oldest_seconds{phase="DRAINING", pool="p5"}': "900x9"},
    ),
    "SickbayGateStuck": (
        "5m", {'sickbay_gate_oldest_seconds{pool="p5"}': "4000x9"}, {'sickbay_gate_oldest_seconds{pool="p5"}': "600x9"}
    ),
    "SickbayPausedLong": (
        "25h",
        {f'sickbay_pauses{{{WHO}, scope="fleet"}}': "1x60"},
        {f'sickbay_pauses{{{WHO}, scope="node"}}': "1x60", f'sickbay_pauses{{{WHO}, scope="fleet"}}': "0x60"},
    ),
    "SickbayFalseDisruptions": (
        "15h",
        {'sickbay_disruptive_cases_total{pool="p5"}': "0+1x60",
         'sickbay_false_disruptions_total{pool="p5"}': "0+0.5x60"},
        {'sickbay_disruptive_cases_total{pool="p5"}': "0x10 1x50",
         'sickbay_false_disruptions_total{pool="p5"}': "0x10 1x50"},
    ),
    "SickbayJobsWaitForCapacity": (
        "10m",
        {f'sickbay_recovery_oldest_seconds{{{WHO}, phase="WAITING_FOR_CAPACITY"}}': "2000x20"},
        {f'sickbay_recovery_oldest_seconds{{{WHO}, phase="RUNNING"}}': "90000x20"},
    ),
    "SickbayJobCannotStop": (
        "5m",
        {f'sickbay_recovery_oldest_seconds{{{WHO}, phase="STOPPING"}}': "1000x20"},
        {f'sickbay_recovery_oldest_seconds{{{WHO}, phase="STOPPING"}}': "100x20"},
    ),
    "SickbayAgentsSilent": (
        "10m",
        {f'sickbay_agents_silent{{{WHO}, pool="p5"}}': "3x20",
         f'sickbay_nodes{{{WHO}, pool="p5", state="ok"}}': "20x20"},
        {f'sickbay_agents_silent{{{WHO}, pool="p5"}}': "3x20",
         f'sickbay_nodes{{{WHO}, pool="p5", state="ok"}}': "90x20",
         f'sickbay_agents_silent{{{WHO}, pool="g6"}}': "2x20",
         f'sickbay_nodes{{{WHO}, pool="g6", state="ok"}}': "4x20"},
    ),
    "SickbayAgentVersionSkew": (
        "25h",
        {'sickbay_agent_info{version="1", node="a"}': "1x60", 'sickbay_agent_info{version="2", node="b"}': "1x60"},
        {'sickbay_agent_info{version="2", node="a"}': "1x60", 'sickbay_agent_info{version="2", node="b"}': "1x60"},
    ),
    "SickbayAgentCheckStuck": (
        "40m", {'sickbay_checks_stuck{instance="n1"}': "1x60"}, {'sickbay_checks_stuck{instance="n1"}': "1x20 0x40"}
    ),
}  # fmt: skip

DAYS, STEP = "40d", "12h"  # the long figures
FIGURES: dict[str, tuple[Series, float]] = {
    "sickbay:mttr_seconds:mean7d": (
        {'sickbay_mttr_seconds_sum{part="total", pool="p5"}': "0+1440x100",
         'sickbay_mttr_seconds_count{part="total", pool="p5"}': "0+1x100"},
        1440.0,  # the worked example of docs/metrics.md: 24 min
    ),
    "sickbay:mttr_seconds:p50_7d": (
        {'sickbay_mttr_seconds_bucket{part="total", pool="p5", le="900"}': "0x100",
         'sickbay_mttr_seconds_bucket{part="total", pool="p5", le="1800"}': "0+1x100",
         'sickbay_mttr_seconds_bucket{part="total", pool="p5", le="+Inf"}': "0+1x100"},
        1350.0,
    ),
    "sickbay:mttr_seconds:p90_7d": (
        {'sickbay_mttr_seconds_bucket{part="total", pool="p5", le="900"}': "0x100",
         'sickbay_mttr_seconds_bucket{part="total", pool="p5", le="1800"}': "0+1x100",
         'sickbay_mttr_seconds_bucket{part="total", pool="p5", le="+Inf"}': "0+1x100"},
        1710.0,
    ),
    "sickbay:censored_seconds:mean": (
        {'sickbay_censored_seconds{why="open", pool="p5"}': "22800x100",
         'sickbay_censored_cases{why="open", pool="p5"}': "2x100"},
        11_400.0,  # "at least 3 h 10 min, 2 cases"
    ),
    "sickbay:false_disruptions:ratio30d": (
        {'sickbay_disruptive_cases_total{pool="p5"}': "0+40x100",
         'sickbay_false_disruptions_total{pool="p5"}': "0+4x100"},
        0.1,
    ),
    "sickbay:relapses:ratio30d": (
        {'sickbay_relapses_total{pool="p5"}': "0+1x100", 'sickbay_resolved_cases_total{pool="p5"}': "0+10x100"}, 0.1,
    ),
    "sickbay:limit_used:ratio": (
        {'sickbay_limit_used{scope="fleet", limit="max_out"}': "3x100",
         'sickbay_limit_allowed{scope="fleet", limit="max_out"}': "6x100"},
        0.5,
    ),
    "sickbay:job_ettr:ratio": ({}, 4180 / 5880),  # of the two jobs below; the first is the worked example, 71.1 %
    "sickbay:fleet_ettr:ratio": (  # weighted by GPUs: the small job hardly counts
        {'sickbay_job_productive_seconds{training_job="a"}': "4180x100",
         'sickbay_job_wall_seconds{training_job="a"}': "5880x100", 'sickbay_job_gpus{training_job="a"}': "64x100",
         'sickbay_job_productive_seconds{training_job="b"}': "0x100",
         'sickbay_job_wall_seconds{training_job="b"}': "5880x100", 'sickbay_job_gpus{training_job="b"}': "1x100"},
        4180 * 64 / (5880 * 65),
    ),
    "sickbay:ended_jobs_ettr:ratio30d": (
        {"sickbay_ended_jobs_productive_gpu_seconds_total": "0+9x100",
         "sickbay_ended_jobs_wall_gpu_seconds_total": "0+10x100"},
        0.9,
    ),
    # r_f of docs/metrics.md: 4 interruptions in 1,000 node-days give 4.0 per 1,000, interval 1.1 to 10.2
    "sickbay:interruptions:count30d": ({'sickbay_interruptions_total{blame="hardware"}': "0x70 4x30"}, 4.0),
    "sickbay:job_node_days:count30d": ({"sickbay_job_node_seconds_total": "0+1440000x100"}, 1000.0),
    **{
        f"sickbay:interruptions:per_node_day30d{bound}": (
            {'sickbay_interruptions_total{blame="hardware"}': "0x70 4x30",
             'sickbay_interruptions_total{blame="user-code"}': "0+1x100",
             "sickbay_job_node_seconds_total": "0+1440000x100"},
            value,
        )
        for bound, value in (("", 0.004), (":lower95", 0.0011), (":upper95", 0.0102))
    },
}  # fmt: skip


def rules() -> list[dict[str, Any]]:
    return [rule for path in FILES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def test_promtool_accepts_every_file() -> None:
    said = promtool("check", "rules", *map(str, FILES))
    assert said.count("SUCCESS") == len(FILES) == 2


def test_every_rule_has_a_test_here() -> None:
    assert {rule["alert"] for rule in rules() if "alert" in rule} == set(ALERTS)
    assert {rule["record"] for rule in rules() if "record" in rule} == set(FIGURES)


def one(series: Series, at: str, expr: str, value: float | None, step: str = "1m") -> dict[str, Any]:
    expected = [] if value is None else [{"value": value}]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    return {
        "interval": step,
        "input_series": inputs,
        "promql_expr_test": [{"expr": expr, "eval_time": at, "exp_samples": expected}],
    }


def check(folder: Path, tests: list[dict[str, Any]], every: str = "1m", of: str = "sickbay-alerts.yaml") -> None:
    file = folder / "tests.yaml"
    rule_files = [str(RULES / of)]
    file.write_text(yaml.safe_dump({"rule_files": rule_files, "evaluation_interval": every, "tests": tests}))
    promtool("test", "rules", str(file))


def firing(alert: str) -> str:
    return f'sum(count by (alertname) (ALERTS{{alertname="{alert}", alertstate="firing"}})) >= bool 1'


def test_each_alert_fires_on_the_sick_series_and_not_on_the_well_ones(tmp_path: Path) -> None:
    tests: dict[str, list[dict[str, Any]]] = {"1m": [], "30m": []}
    for alert, (at, sick, well) in ALERTS.items():
        step = "30m" if at.endswith("h") else "1m"
        tests[step] += [one(sick, at, firing(alert), 1.0, step), one(well, at, firing(alert), None, step)]
    for step, some in tests.items():
        check(tmp_path, some, step)


def test_a_denial_by_an_admission_policy_is_told_as_a_missing_right(tmp_path: Path) -> None:
    denied = {f'sickbay_api_requests_total{{{WHO}, verb="PATCH", status="denied"}}': "0+1x30"}
    check(tmp_path, [one(denied, "25m", firing("SickbayRightsMissing"), 1.0)])


def test_an_alert_that_should_have_fired_and_did_not_is_noticed(tmp_path: Path) -> None:
    """This very file must be able to fail."""
    with pytest.raises(AssertionError, match="FAILED"):
        check(tmp_path, [one({}, "5m", firing("SickbayCaseEscalated"), 1.0)])


def test_the_recorded_figures_are_those_of_the_worked_examples(tmp_path: Path) -> None:
    together: Series = {}
    for series, _ in FIGURES.values():
        together |= series
    test = one(together, DAYS, "vector(1)", 1.0, STEP)
    for name, (_, value) in FIGURES.items():
        wanted = {"expr": f"round(sum({name}), 0.0001)", "eval_time": DAYS, "exp_samples": [{"value": round(value, 4)}]}
        test["promql_expr_test"].append(wanted)
    check(tmp_path, [test], STEP, of="sickbay-records.yaml")


def test_an_alert_speaks_to_a_person_and_names_what_to_do() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    headings = {heading.lower() for heading in re.findall(r"^### (\S+)$", page, re.M)}
    alerts = [rule for rule in rules() if "alert" in rule]
    for rule in alerts:
        assert rule["annotations"]["summary"].rstrip().endswith("."), rule["alert"]
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert headings == {rule["alert"].lower() for rule in alerts}


def test_the_words_of_an_alert_name_pool_and_fault(tmp_path: Path) -> None:
    at, sick, _ = ALERTS["SickbayCaseEscalated"]
    said = {
        "exp_labels": {"severity": "warning", "pool": "p5", "fault": "gpu-lost"},
        "exp_annotations": {
            "summary": "2 node(s) of pool p5 need a person: gpu-lost.",
            "runbook": "docs/alerts.md#sickbaycaseescalated",
        },
    }
    test = one(sick, at, "vector(1)", 1.0)
    test["alert_rule_test"] = [{"eval_time": at, "alertname": "SickbayCaseEscalated", "exp_alerts": [said]}]
    check(tmp_path, [test])


def test_the_operators_object_holds_the_same_rules() -> None:
    assert operator.TARGET.read_text() == operator.text(), "run: python tools/rules.py"


METRIC = re.compile(r"\bsickbay[_:][a-z0-9_:]+")


def documented() -> set[str]:
    """Every metric of docs/metrics.md, with the names that histograms have in queries."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    names = set(re.findall(r"`(sickbay[_:][a-z0-9_:]+)`", page))
    return names | {f"{name}_{part}" for name in names for part in ("bucket", "count", "sum")}


def test_every_metric_in_a_rule_is_defined_in_the_docs() -> None:
    for rule in rules():
        assert set(METRIC.findall(rule["expr"])) <= documented(), rule
