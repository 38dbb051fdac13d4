"""One plain line per notice, that cannot be forged and carries no secrets."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.model import Notice
from sickbay.notifiers.log import MAX_LINE, LogNotifier, line


def test_a_line_reads_as_key_value_pairs() -> None:
    notice = Notice("n1.1/3", "urgent", "n1 needs a person", 'It said "lost".', case="n1.1", at=1_700_000_000.0)
    assert line(notice) == (
        'at=2023-11-14T22:13:20Z level=urgent key=n1.1/3 case=n1.1 title="n1 needs a person" body="It said \\"lost\\"."'
    )


@given(st.text(), st.text())
def test_a_notice_is_always_one_printable_line_of_bounded_length(title: str, body: str) -> None:
    text = line(Notice("k", "info", title, body))
    assert text.splitlines() == [text]
    assert text.isprintable()
    assert len(text) <= MAX_LINE


def test_a_quoted_log_line_cannot_forge_a_second_notice() -> None:
    text = line(Notice("k", "info", "t", 'x" level=urgent\nat=now level=urgent'))
    assert "\n" not in text
    assert shlex.split(text)[-1] == 'body=x" level=urgent\\nat=now level=urgent'


@pytest.mark.parametrize(
    "secret",
    [
        "password=hunter2hunter2",
        "AWS_SECRET_ACCESS_KEY: hunter2hunter2",
        "Authorization: Bearer hunter2hunter2",
        "https://bot:hunter2hunter2@chat.example.com/x",
        '{"token": "hunter2hunter2"}',
        "https://chat.example.com/x?api_key=hunter2hunter2&y=1",
        "AKIAHUNTER2HUNTER2AB",
    ],
)
def test_what_looks_like_a_secret_is_blotted_out(secret: str) -> None:
    text = line(Notice("k", "info", "t", f"the job printed {secret} and died"))
    assert "hunter2" not in text.lower()
    assert "***" in text
    assert "and died" in text


def test_ordinary_words_are_left_alone() -> None:
    body = "XID 79 on 0000:3b:00, node https://n1.example.com:8443/metrics, 3 tokens of evidence"
    assert body in line(Notice("k", "info", "t", body))


def test_lines_go_to_standard_error_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    LogNotifier().send(Notice("k", "info", "hello", ""))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("level=info key=k title=hello\n")
