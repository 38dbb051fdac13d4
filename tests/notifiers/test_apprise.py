"""Chat, pager and mail through apprise: each address by itself, and none ever said."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from sickbay.errors import UserError
from sickbay.model import Done, Notice, Retry
from sickbay.notifiers.apprise import apprise_notifiers

from .far_ends import Receiver

NOTICE = Notice("n1.1/3", "urgent", "n1 needs a person", "The reboot did not help.", "n1.1")


def written(folder: Path, *lines: str) -> str:
    path = folder / "addresses"
    path.write_text("\n".join(lines))
    return str(path)


def test_each_address_answers_for_itself(tmp_path: Path, receiver: Receiver) -> None:
    """A pager that is down must not make the chat hear everything twice."""
    file = written(tmp_path, f"json://127.0.0.1:{receiver.port}/", "", "json://127.0.0.1:9/")
    chat, pager = apprise_notifiers(file, "c1")
    assert (chat.name, pager.name) == ("apprise-1", "apprise-3")
    assert chat.send(NOTICE) == Done()
    assert isinstance(pager.send(NOTICE), Retry)
    (posted,) = receiver.posted
    told = json.loads(posted.body)
    assert (told["title"], told["type"]) == ("n1 needs a person", "failure")


def test_no_address_is_logged_or_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    (pager,) = apprise_notifiers(written(tmp_path, "json://bot:hunter2@127.0.0.1:9/"), "c1")
    said = pager.send(NOTICE)
    assert isinstance(said, Retry)
    assert "hunter2" not in said.why + pager.name + caplog.text + "".join(capsys.readouterr())


def test_a_line_that_is_no_address_is_named_by_its_number(tmp_path: Path) -> None:
    file = written(tmp_path, "# ours", "nosuchkind://hunter2")
    with pytest.raises(UserError, match="line 2") as problem:
        apprise_notifiers(file, "c1")
    assert "hunter2" not in str(problem.value)


@pytest.mark.parametrize("lines", [(), ("# nothing",)])
def test_a_file_without_an_address_is_a_mistake(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="has no address in it"):
        apprise_notifiers(written(tmp_path, *lines), "c1")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        apprise_notifiers(str(tmp_path / "none"), "c1")
