"""A person's severity for a code wins, and leads to a fault that can be treated that way."""

from __future__ import annotations

import pytest

from sickbay.catalog import load
from sickbay.errors import ConfigError
from sickbay.model import Severity


@pytest.mark.parametrize(
    ("code", "word", "fault"),
    [
        ("xid.94", "REBOOT", "ecc-contained"),  # its ladder has a reboot
        ("xid.94", "reset", "ecc-contained"),
        ("xid.13", "RESET", "reset-required"),  # an application fault has no ladder of its own
        ("xid.165", "REPLACE", "replace-required"),
        ("xid.79", "RESET", "reset-required"),  # its ladder begins with a reboot
        ("xid.79", "MONITOR", "inform"),
        ("xid.13", "MONITOR", "application-fault"),
    ],
)
def test_an_override_leads_to_a_fault_with_such_a_rung(code: str, word: str, fault: str) -> None:
    catalog = load().with_overrides({code: word})
    assert catalog.codes[code].severity is Severity[word.upper()]
    assert catalog.codes[code].fault == fault


def test_an_overridden_code_is_no_longer_read_by_its_traits() -> None:
    catalog = load().with_overrides({"xid.64": "MONITOR"})
    found = catalog.refined("xid.64", {"text": "All reserved rows for bank are remapped"})
    assert found is not None
    assert found.fault == "inform"


def test_no_overrides_change_nothing() -> None:
    assert load().with_overrides({}) is load()


@pytest.mark.parametrize(
    ("code", "word", "says"), [("xid.9999", "RESET", "no such code"), ("xid.94", "KAPUTT", "KAPUTT")]
)
def test_a_wrong_override_says_which_and_what_would_be_right(code: str, word: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load().with_overrides({code: word})
    assert caught.value.key == f"severity_overrides.{code}"
