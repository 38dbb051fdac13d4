"""What is wrong, where, and what would be right; all of it at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.errors import ConfigError
from sickbay.settings_load import ConfigProblems, load, parse


def problems(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigProblems) as caught:
        parse(text, "x.toml", environ)
    return str(caught.value).splitlines()


def test_everything_is_reported_at_once() -> None:
    text = 'platfrom = "x"\n[policy]\nmax_verb = "REBOT"\nevict = 1\n[pool.a.policy]\ndrain_s = -1\n'
    said = problems(text, SICKBAY_AGENT__NODE_NAM="x", CHECK_INTERVAL="often")
    assert len(said) == 6


def test_problems_are_also_a_config_error_with_its_parts() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("[policy]\nevict = 1\n", "x.toml")
    assert (caught.value.file, caught.value.key) == ("x.toml", "line 2: policy.evict")
    assert (caught.value.wrong, caught.value.right) == ("1 is a whole number", "write true or false")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[policy]\nmax_verbs = 1", 'line 2: policy.max_verbs: there is no such key; did you mean "max_verb"?'),
        ("[polcy]\nevict = true", 'line 1: polcy: there is no such key; did you mean "policy"?'),
        ("[pools.a.policy]\nevict = true", 'did you mean "pool"?'),
        ("workers = 3", "line 1: workers: there is no such key; it belongs in [controller]"),
        ("[jobs]\nevict = true", "it belongs in [policy]"),
        ("[policy]\nxyzzy = 1", "known here: max_verb, max_out,"),
        ('[policy]\nmax_verb = "reboot"', '"reboot" is not known; did you mean "REBOOT"? one of OBSERVE, CORDON'),
        ("[policy]\nmax_verb = 3", "3 is not known; write one of OBSERVE"),
        ('[policy]\ndrain_s = "30m"', '"30m" will not do; write a number, 0.1 to 31,536,000 seconds'),
        ("[policy]\ndrain_s = true", "true is a truth value; write a number"),
        ("[policy]\ndrain_s = inf", "inf is not finite; write a number"),
        ("[policy]\ndrain_s = nan", "nan is not finite; write a number"),
        ("[policy]\nflaps_accepted = 1.5", "1.5 is a number; write a whole number, 0 to 1,000"),
        ("[policy]\nbreaker_failures = 0", "0 is too small; write 1 to 1,000,000"),
        ("[controller]\ncommon_share = 25", "25 is too large; write 0 to 1"),
        ('[policy]\nmax_out = "lots"', 'write a number of nodes (4), a share ("10%")'),
        ('[policy]\nmax_out = "110%"', "110.0 is too large; write 0 to 100"),
        ("[policy]\nmax_out = -1", "-1 is too small"),
        ("[policy]\nmax_out = { percentage = 3 }", 'a limit has no "percentage"; it has count, percent, at_least'),
        ('[policy]\napproval = "REBOOT"', 'write a list, ["like", "this"]'),
        ('[policy]\napproval = ["REBOOT", "EXPLODE"]', '"EXPLODE" is not known; '),
        ('[policy]\nwindows = ["weekends"]', 'write a window such as "Mon-Fri 02:00-05:00", in UTC'),
        ('[policy]\nwindows = ["Mon 25:00-26:00"]', "will not do"),
        ('[policy]\nwindows = ["Mon 24:00-02:00"]', "will not do"),
        (
            '[policy]\nwindows = ["Mon 02:00-02:00"]',
            '"Mon 02:00-02:00" ends when it begins: nobody can tell whether it is empty or a whole day; write '
            '"Mon 00:00-24:00" for the whole day, or a later end',
        ),
        ('[policy]\nwindows = ["00:00-00:00"]', 'write "00:00-24:00" for the whole day'),
        ('[evidence]\nstore = "s3"', "evidence.bucket: not set, though evidence.store is s3; name the bucket"),
        ("[policy]\nper_window = { SHOUT = 3 }", '"SHOUT" is not known'),
        ('[ceilings]\nagnet = ["CORDON"]', 'there is no source "agnet"; did you mean "agent"?'),
        ('[ceilings]\nllm = ["CORDN"]', 'did you mean "CORDON"?'),
        ('[severity_overrides]\n"94" = "RESET"', '"94" is no code; write one such as "xid.94"'),
        ('[severity_overrides]\n"xid.94" = "HARD"', '"HARD" is not known'),
        ("policy = 3", "line 1: policy: 3 is not a table; write [policy]"),
        ("pool = 3", "write [pool.NAME.policy]"),
        ("[pool]\na = 3", "line 2: pool.a: 3 is not a table; write [pool.NAME.policy]"),
        ('[pool.""]\nevict = true', "a pool has no name; write [pool.NAME.policy]"),
        ('[controller]\nlisten = "0.0.0.0:65536"', 'write an address and a port such as "0.0.0.0:9464"'),
        ("[pool.a]\nevict = true", "a pool has only a policy; write it under [pool.a.policy]"),
        ('store = "postgre"', "one of sqlite, kubernetes, memory"),
        ('platform = "nomad"', "one of simulated, kubernetes"),
        ("cluster = 3", 'write text in quotes, "like this"'),
        ('[notify]\nwebhook_url = "chat"', 'an address such as "https://'),
        (
            '[controller]\nlisten = "0.0.0.0:9464"\nprobe_listen = "0.0.0.0:9464"',
            "which is controller.listen as well; two doors need two addresses",
        ),
        ("[controller]\nperiod_s = 100", "is shorter than controller.period_s (100); "),
        ("[agent]\ncheck_interval_s = 3600", "every node would count as unseen between cycles"),
    ],
)
def test_a_mistake_says_where_what_and_what_would_be_right(text: str, said: str) -> None:
    found = problems(text)
    assert len(found) == 1
    assert found[0].startswith("x.toml: ")
    assert said in found[0]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SICKBAY_POLICY__MAX_VERBS", "x", "did you mean SICKBAY_POLICY__MAX_VERB?"),
        ("SICKBAY_POLICE__EVICT", "1", 'there is no group "POLICE"; write SICKBAY_KEY, SICKBAY_POLICY__KEY'),
        ("SICKBAY_CLUSTR", "x", "did you mean SICKBAY_CLUSTER?"),
        ("SICKBAY_POLICY__EVICT", "maybe", '"maybe" will not do; write true or false'),
        ("SICKBAY_POLICY__MAX_OUT__COUNT", "many", "write a whole number"),
        ("SICKBAY_POLICY__MAX_OUT", "{ count = ", "write a number of nodes"),
        ("CHECK_INTERVAL", "5m", "write a number, 5 to 86,400 seconds"),
        ("CHECKS_LIGHTWEIGHT", "0 9", '"9" is not known'),
        ("NVLINK_DEFAULT", "SOMETIMES", '"SOMETIMES" is not known'),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(name: str, value: str, said: str) -> None:
    found = problems("", **{name: value})
    assert len(found) == 1
    assert found[0].startswith(f"environment: {name}: ")
    assert said in found[0]


def test_variables_an_orchestrator_sets_are_none_of_our_business() -> None:
    load(None, {"SICKBAY_SERVICE_HOST": "10.0.0.1", "SICKBAY_PORT_8080_TCP": "tcp://10.0.0.1:8080", "HOME": "/"})


# --- files that are no settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[policy\nevict = true", "line 1: not TOML"),
        (b"[policy]\nevict = yes", "line 2: not TOML"),
        (b"[policy]\nevict = true\nevict = true", "not TOML: Cannot overwrite a value"),
        (b"\xff\xfe\x00", "byte 0: not UTF-8 text"),
        (b"\x00" * 100, "not TOML"),
        (b"# " + b"x" * 1_100_000, "larger than 1 MB"),
        (b"x = " + b"[" * 5000, "not TOML"),
    ],
)
def test_a_file_that_is_no_toml_is_a_clear_error(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_a_missing_file_and_a_folder_are_clear_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            load(path, {})


KEYS = st.sampled_from(["policy", "max_out", "evict", "windows", "pool", "a", "ceilings", "llm", "xid", "jobs", "x y"])
VALUES = st.sampled_from(["1", "-1", "true", '"x"', "[]", "[1]", "{}", "{ a = 1 }", "inf", "1979-05-27", '"""\nz\n"""'])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.lists(KEYS, min_size=1, max_size=4), VALUES), max_size=4))
def test_whatever_is_in_the_file_the_answer_is_settings_or_problems(rows: list[tuple[list[str], str]]) -> None:
    text = "\n".join(".".join(f'"{key}"' for key in keys) + f" = {value}" for keys, value in rows)
    said: list[str] = []
    try:
        parse(text, "x.toml", {})
    except ConfigProblems as error:
        said = [problem.right for problem in error.problems]
    assert all(said)
