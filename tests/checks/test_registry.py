"""One list of checks, wherever it is written."""

from __future__ import annotations

from sickbay import settings_rules as rules
from sickbay.checks import ALL, BY_NAME
from sickbay.suite.table import SUITES


def test_settings_know_exactly_the_checks_there_are() -> None:
    assert set(rules.CHECKS) == {check.name for check in ALL}


def test_names_numbers_and_files_are_each_used_once() -> None:
    for values in (
        [c.name for c in ALL],
        [c.number for c in ALL if c.number is not None],
        [c.file or c.name for c in ALL],
    ):
        assert len(values) == len(set(values))


def test_the_numbers_and_file_names_are_the_original_suite_s() -> None:
    """originals 002.1"""
    assert {check.number: (check.name, check.file) for check in ALL if check.number is not None} == {
        0: ("nvidia-smi", "0-nvidia-smi"),
        1: ("dcgm-l2", "1-dcgm-diag-l2"),
        2: ("efa-enumeration", "2-efa-enumeration"),
        3: ("topology", "3-topology-check"),
        4: ("dcgm-l4", "4-dcgm-diag-l4"),
        5: ("nccl-allreduce", "5-nccl-allreduce"),
        6: ("efa-loopback", "6-efa-loopback"),
    }


def test_suites_name_only_checks_that_exist_and_every_check_is_in_one() -> None:
    named = {name for suite in SUITES.values() for name in suite.checks}
    assert named == set(BY_NAME)
