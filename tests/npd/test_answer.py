"""`sickbay npd-check`: what it says and exits with, for each state that the agent's verdict can be in."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay import cli
from sickbay.cli import npd_check
from tests.fuzzing import EXAMPLES

from .verdicts import FELL_OFF, ask, verdict, write

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("status", "code"), [("pass", npd_check.OK), ("warn", npd_check.OK), ("fail", npd_check.NONOK)]
)
def test_the_exit_code_is_the_verdict_and_the_line_its_reason(
    status: str, code: int, tmp_path: Path, capsys: Capture
) -> None:
    write(tmp_path, verdict(status, "remapped rows are rising on GPU 3"))
    said = ask(tmp_path, capsys)
    assert (said.code, said.line) == (code, "remapped rows are rising on GPU 3")


def test_the_reason_comes_first_and_nothing_else_is_printed(tmp_path: Path, capsys: Capture) -> None:
    """originals 003.5 #7: the nvidia-smi table was printed first, so the 80 characters showed its banner."""
    write(tmp_path, verdict("fail", FELL_OFF))
    assert ask(tmp_path, capsys).line == FELL_OFF


def test_a_driver_that_hangs_is_a_failure_and_not_unknown(tmp_path: Path, capsys: Capture) -> None:
    """originals 003.5 #5: the plug-in ran nvidia-smi itself, hung with it, and the time limit made that Unknown."""
    write(tmp_path, verdict("fail", "nvidia-smi hangs in the kernel and cannot even be killed"))
    assert ask(tmp_path, capsys).code == npd_check.NONOK


def test_a_node_without_gpus_is_unknown(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, verdict(gpus=False))
    said = ask(tmp_path, capsys)
    assert (said.code, said.line) == (npd_check.UNKNOWN, "this node has no GPUs")


def test_an_agent_that_could_not_look_is_unknown_and_says_why(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, verdict("unknown", "nvidia-smi is not installed here"))
    said = ask(tmp_path, capsys)
    assert (said.code, said.line) == (npd_check.UNKNOWN, "cannot tell: nvidia-smi is not installed here")


def test_no_agent_is_unknown_and_says_where_it_looked(tmp_path: Path, capsys: Capture) -> None:
    """originals 003.5 #3: a node that could not be judged was unprotected and nobody was told why."""
    said = ask(Path("/nowhere"), capsys)
    assert said.code == npd_check.UNKNOWN
    assert said.line == "no verdict from the agent yet: is it running? no /nowhere/verdict.json"


@pytest.mark.parametrize("status", ["pass", "fail"])
def test_an_old_verdict_is_unknown_and_the_last_word_is_kept(status: str, tmp_path: Path, capsys: Capture) -> None:
    """originals 002.12 #11: when the agent hung, its last "pass" stayed on the node for ever."""
    now = time.time()
    write(tmp_path, verdict(status, "as I said", at=now - 1020, expires_at=now - 1))
    said = ask(tmp_path, capsys)
    assert (said.code, said.line) == (npd_check.UNKNOWN, f"agent silent for 17 min; it last said {status}: as I said")


def test_a_verdict_from_before_the_reboot_is_unknown(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, verdict("pass", boot_id="11111111-2222-3333-4444-555555555555"))
    said = ask(tmp_path, capsys)
    assert said.code == npd_check.UNKNOWN
    assert "before the last boot" in said.line


def test_a_clock_set_back_cannot_keep_a_verdict_fresh(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, verdict("pass", at=time.time() + 86_400, expires_at=time.time() + 87_300))
    said = ask(tmp_path, capsys)
    assert (said.code, said.line) == (npd_check.UNKNOWN, "the verdict is dated 24 h ahead: the clock was set back")


@pytest.mark.parametrize(
    "damage",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 60_000, b'{"schema": 1}', b" " * 70_000, b"9" * 20_000,
        json.dumps(verdict(schema=2)).encode(), json.dumps(verdict("great")).encode(),
        json.dumps(verdict("fail", expires_at="soon")).encode(), json.dumps(verdict("fail", at=True)).encode(),
        json.dumps(verdict("fail", expires_at=float("nan"))).encode(), json.dumps(verdict("fail", at=-1)).encode(),
        json.dumps(verdict("fail", boot_id=None)).encode(),
    ],
    ids=range(16),
)  # fmt: skip
def test_a_damaged_verdict_is_unknown(damage: bytes, tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, damage)
    assert ask(tmp_path, capsys).code == npd_check.UNKNOWN


def test_a_pipe_or_a_folder_in_the_verdicts_place_does_not_hang_us(tmp_path: Path, capsys: Capture) -> None:
    os.mkfifo(tmp_path / "verdict.json")
    assert ask(tmp_path, capsys).line == "verdict.json is not a file"
    (tmp_path / "verdict.json").unlink()
    (tmp_path / "verdict.json").mkdir()
    assert ask(tmp_path, capsys).code == npd_check.UNKNOWN


def test_a_long_reason_is_cut_where_people_see_it(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, verdict("fail", "GPU 3 is gone " * 20))
    said = ask(tmp_path, capsys)
    assert len(said.line) <= 80
    assert said.line.endswith("...")


def test_a_reason_with_strange_characters_stays_one_plain_line(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, verdict("fail", "GPU\n\x1b[31m3\x00\tis göne"))
    assert ask(tmp_path, capsys).line == "GPU ?[31m3? is g?ne"


def test_a_failure_without_a_reason_still_has_words(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, verdict("fail", ""))
    assert ask(tmp_path, capsys).line == "GPUs are down, severity REBOOT"


def test_only_failures_make_events(tmp_path: Path, capsys: Capture) -> None:
    """A temporary rule makes an event of each code but 0: a CPU node must not report GPUsAreDown once a minute."""
    assert ask(tmp_path, capsys, "--only-failures").code == npd_check.OK
    write(tmp_path, verdict("fail", FELL_OFF))
    assert ask(tmp_path, capsys, "--only-failures").code == npd_check.NONOK


def test_a_wrong_option_is_unknown_and_says_which_are_right(capsys: Capture) -> None:
    assert npd_check.main(["--state"]) == npd_check.UNKNOWN
    assert capsys.readouterr().out == "npd-check does not know '--state': only --state-dir DIR, --only-failures\n"


def test_the_folder_can_be_named_by_the_agents_setting(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, verdict("warn", "GPU 2 is warm"))
    monkeypatch.setenv("SICKBAY_AGENT__STATE_DIR", str(tmp_path))
    assert npd_check.main([]) == npd_check.OK
    assert capsys.readouterr().out == "GPU 2 is warm\n"


def test_a_mistake_of_our_own_is_unknown_and_never_a_failure(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(npd_check, "boot_id", broken)
    monkeypatch.setattr(npd_check, "read", lambda path: verdict("fail"))
    assert npd_check.main([]) == npd_check.UNKNOWN
    assert capsys.readouterr().out == "npd-check itself failed: ZeroDivisionError('ours')\n"


def test_sickbay_npd_check_is_the_same_command(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, verdict("fail", FELL_OFF))
    with pytest.raises(SystemExit) as stop:
        cli.main(["npd-check", "--state-dir", str(tmp_path)])
    assert (stop.value.code, capsys.readouterr().out) == (1, FELL_OFF + "\n")


def test_the_default_folder_is_the_agents() -> None:
    from sickbay.settings import AgentSettings

    assert AgentSettings().state_dir == npd_check.STATE_DIR


FIELDS = st.sampled_from(["schema", "at", "expires_at", "boot_id", "status", "severity", "reason", "gpus"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=EXAMPLES // 2)
@given(st.dictionaries(FIELDS, JSON, max_size=4), st.sampled_from(["pass", "warn", "fail", "unknown"]))
def test_fuzz_only_a_sound_verdict_that_says_fail_is_a_failure(changed: dict[str, object], status: str) -> None:
    given_verdict = verdict(status) | changed
    try:
        code, line = npd_check.answer(given_verdict, time.time(), npd_check.boot_id())
    except npd_check.Unclear as why:
        code, line = npd_check.UNKNOWN, str(why)
    shown = npd_check.plain(line)
    assert len(shown) <= 80
    assert all(" " <= c <= "~" for c in shown)
    assert code != npd_check.NONOK or given_verdict["status"] == "fail"


@settings(max_examples=EXAMPLES // 2)
@given(st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()))
def test_fuzz_whatever_is_in_the_file_it_is_no_failure(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    path = folder / "fuzzed.json"
    path.write_bytes(data)
    try:
        code, _ = npd_check.answer(npd_check.read(str(path)), time.time(), npd_check.boot_id())
    except npd_check.Unclear:
        code = npd_check.UNKNOWN
    assert code == npd_check.UNKNOWN
