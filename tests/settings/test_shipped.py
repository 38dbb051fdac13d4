"""What we ship about settings is true: the examples are valid, the page is current, the command works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sickbay import settings_doc
from sickbay.cli.config import app
from sickbay.settings import Settings
from sickbay.settings_env import ALIASES, SEVERITY_ALIASES
from sickbay.settings_load import hasty, load

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))


def run(*arguments: str, **environ: str) -> tuple[int, str, str]:
    ambient = dict.fromkeys({"SICKBAY_CONFIG", *ALIASES, *SEVERITY_ALIASES}, "")  # empty: not set
    result = CliRunner().invoke(app, list(arguments), env={**ambient, **environ})
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_valid(path: Path) -> None:
    assert load(path, {}).path == str(path)


def test_the_examples_say_what_their_names_promise() -> None:
    careful, full, observe = (load(path, {}).settings for path in EXAMPLES)
    assert observe.policy == Settings().policy
    assert careful.policy.max_verb == "REBOOT"
    assert careful.policy.at_once.count == 1
    assert "REBOOT" in careful.policy_for("training").approval
    assert full.policy.max_verb == "REPLACE"
    assert full.policy.approval == ()


def test_the_page_about_settings_is_current() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == settings_doc.page(), "run: python -m sickbay.settings_doc > docs/settings.md"


def test_every_setting_says_what_it_is_for() -> None:
    assert settings_doc.undocumented() == []


def test_check_says_that_a_good_file_is_good_and_how_far_it_goes() -> None:
    code, out, _ = run("check", str(ROOT / "examples" / "careful.toml"))
    assert code == 0
    assert "good. May go as far as: REBOOT (pool training), REBOOT (pool dev), REBOOT (other pools)." in out


def test_check_says_that_a_gate_is_left_out_where_nobody_could_open_it(tmp_path: Path) -> None:
    path = tmp_path / "gate.toml"
    path.write_text('[kubernetes]\ngate = true\n[pool.training.policy]\nmax_verb = "CORDON"\n')
    code, out, _ = run("check", str(path))
    assert code == 0
    assert "kubernetes.gate is on, but at OBSERVE (other pools) nobody could open it: no gate there." in out


def test_check_tells_times_in_which_nothing_can_be_done(tmp_path: Path) -> None:
    """They are no mistakes, as trials want them; a pool that only inherits one is not named beside [policy]."""
    path = tmp_path / "hasty.toml"
    path.write_text(
        "[policy]\nwaiting_s = 1\ndrain_s = 30\n[jobs]\nrestarting_s = 2.5\n"
        "[pool.inherits.policy]\nevict = false\n[pool.own.policy]\nwaiting_s = 59\n"
    )
    code, out, _ = run("check", str(path))
    assert code == 0
    first, *notes = out.splitlines()
    assert "good." in first
    assert [note.partition(":")[2].split(" is shorter ")[0] for note in notes] == [
        " policy.waiting_s (1)", " jobs.restarting_s (2.5)", " pool.own.policy.waiting_s (59)"
    ]  # fmt: skip
    assert notes[0] == (
        "note: policy.waiting_s (1) is shorter than 60 seconds: a case asks for its place once a minute, so its "
        "time is over before it asks again"
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_gives_everything_its_time(path: Path) -> None:
    assert hasty(load(path, {}).settings) == []


def test_check_lists_every_problem_and_exits_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('platfrom = "x"\n[policy]\nevict = 1\n')
    code, out, err = run("check", str(path))
    assert (code, out) == (2, "")
    assert f'{path}: line 1: platfrom: there is no such key; did you mean "platform"?' in err
    assert f"{path}: line 3: policy.evict: 1 is a whole number; write true or false" in err
    assert "2 problems." in err


def test_check_of_a_missing_file_exits_2() -> None:
    code, _, err = run("check", "no/such/file.toml")
    assert code == 2
    assert "no/such/file.toml" in err
    assert "Traceback" not in err


def test_check_looks_at_the_file_alone() -> None:
    code, _, _ = run("check", str(ROOT / "examples" / "observe.toml"), CHECK_INTERVAL="nonsense")
    assert code == 0


def test_show_prints_each_value_with_where_it_came_from(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[policy]\nmax_verb = "CORDON"\n')
    code, out, _ = run("show", "--config", str(path), CHECK_INTERVAL="120")
    rows = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines()}
    assert code == 0
    assert rows["policy.max_verb"].split() == ["CORDON", f"{path}:2"]
    assert rows["agent.check_interval_s"].split() == ["120", "environment", "CHECK_INTERVAL"]
    assert rows["jobs.stall_s"].split() == ["300", "default"]


def test_show_as_json() -> None:
    code, out, _ = run("show", "--json", SICKBAY_POLICY__MAX_OUT="4")
    rows = json.loads(out)
    assert code == 0
    assert rows["policy.max_out"] == {
        "value": {"count": 4, "percent": 100.0, "at_least": 0},
        "from": "environment SICKBAY_POLICY__MAX_OUT",
    }
    assert rows["ceilings"]["value"]["webhook"] == ["CORDON", "VERIFY"]
    assert rows["cluster"] == {"value": "default", "from": "default"}


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_show_hides_the_token_in_an_address(form: tuple[str, ...]) -> None:
    code, out, _ = run("show", *form, WEBHOOK_URL="https://bot:hunter2@chat.example.com/T0/B0/hunter2?x=hunter2")
    assert code == 0
    assert "hunter2" not in out
    assert "https://chat.example.com/***" in out


def test_show_reports_a_wrong_environment() -> None:
    code, out, err = run("show", CHECK_INTERVAL="nonsense")
    assert (code, out) == (2, "")
    assert "environment: CHECK_INTERVAL" in err


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        ("", True),
        ('store = "s3"\nbucket = "acme-evidence"', False),
        ('store = "none"', False),
        ('claim = "shelf"', False),
    ],
)
def test_check_tells_that_evidence_goes_with_the_controllers_pod(tmp_path: Path, evidence: str, said: bool) -> None:
    path = tmp_path / "kept.toml"
    path.write_text(f'platform = "kubernetes"\nstore = "kubernetes"\n[evidence]\n{evidence}\n')
    code, out, _ = run("check", str(path))
    assert code == 0
    assert ("a rollout of the controller loses it" in out) is said


def test_elsewhere_a_folder_is_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    path.write_text('platform = "simulated"\n')
    assert "loses it" not in run("check", str(path))[1]
