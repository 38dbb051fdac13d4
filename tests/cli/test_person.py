"""Who is typing: the uid says so, the environment does not."""

from __future__ import annotations

import os
import pwd

from sickbay.cli.person import person

LIES = {"USER": "mallory", "LOGNAME": "mallory", "SUDO_USER": "mallory"}
NOBODY = pwd.getpwnam("nobody").pw_uid


def test_the_environment_names_nobody() -> None:
    assert person(LIES) == pwd.getpwuid(os.getuid()).pw_name
    assert person(LIES, NOBODY) == "nobody"


def test_behind_root_is_whom_sudo_names_by_uid() -> None:
    assert person({**LIES, "SUDO_UID": str(NOBODY)}, 0) == "nobody"
    assert person({"SUDO_UID": "not a number"}, 0) == person({"SUDO_UID": "9" * 40}, 0) == "root"


def test_nobody_but_root_is_believed_about_sudo() -> None:
    assert person({"SUDO_UID": "0"}, NOBODY) == "nobody"


def test_a_uid_without_a_name_is_told_as_it_is() -> None:
    assert person({}, 987_654_321) == "uid 987654321"
