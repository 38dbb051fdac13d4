"""Some rows of `sickbay sim partitions`: a healthy fleet is cut off, and nobody is harmed. The bar itself is in
test_partitions_bar.py."""

from __future__ import annotations

import pytest

from sickbay.core import absence
from sickbay.sim.partitions import Row, chosen, play, table


def holds(row: Row) -> bool:
    assert row.beyond == ()
    return True


@pytest.mark.parametrize("kind", ["control", "both", "power"])
def test_two_fifths_that_are_away_for_two_hours_are_left_alone_and_told_of_three_times_at_most(kind: str) -> None:
    row = play(32, kind, 0.4, 7_200.0)
    assert holds(row)
    assert (row.cordons, row.treated, row.given_up, row.two_attempts) == (0, 0, 0, 0)
    assert 1 <= row.notices <= 3


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_no_job_is_given_up_for_a_fabric_that_is_cut_for_half_a_day(share: float) -> None:
    row = play(32, "data", share, 43_200.0)
    assert holds(row)
    assert (row.cordons, row.treated, row.given_up) == (0, 0, 0)


@pytest.mark.parametrize("kind", ["control", "data", "both", "power"])
@pytest.mark.parametrize("length_s", [120.0, 600.0])
def test_a_tenth_that_is_away_for_minutes_is_left_alone(kind: str, length_s: float) -> None:
    row = play(32, kind, 0.1, length_s)
    assert holds(row)
    assert (row.cordons, row.treated) == (0, 0)


@pytest.mark.parametrize("kind", ["control", "data", "both", "power"])
def test_a_lone_node_gets_a_reboot_at_most_while_it_has_power(kind: str) -> None:
    row = play(32, kind, 0.03, 7_200.0)
    assert holds(row)
    if kind == "control":
        assert row.verbs == {"REBOOT": 1}
    if kind == "power":  # it is dead indeed: nobody can tell it from a broken machine
        assert row.verbs["REBOOT"] == 1


@pytest.mark.parametrize("kind", ["control", "both"])
def test_a_lone_node_of_which_its_provider_says_that_it_runs_is_not_touched(kind: str) -> None:
    row = play(32, kind, 0.03, 7_200.0, witness=True)
    assert holds(row)
    assert row.treated == 0


@pytest.mark.parametrize("place", ["rack", "pool"])
def test_a_rack_and_a_pool_of_its_own_that_are_away_are_left_alone(place: str) -> None:
    row = play(32, "both", 0.1, 7_200.0, place=place)
    assert holds(row)
    assert (row.cordons, row.treated) == (0, 0)


def test_two_nodes_that_are_all_of_their_pool_are_many() -> None:
    row = play(64, "control", 0.03, 7_200.0, place="pool")
    assert holds(row)
    assert (row.incidents, row.cordons, row.treated) == (1, 0, 0)


def test_a_brain_that_treats_who_is_away_with_many_ends_the_command_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = chosen(32, "control", "40", "120")
    assert table(rows) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 rows, 0 beyond the bar, ")
    monkeypatch.setattr(absence, "scope_of", lambda *args: ())
    assert table(rows) == 1
    said = capsys.readouterr().out
    assert "with nothing wrong: away with many others." in said
    assert said.splitlines()[-1].startswith("1 rows, 1 beyond the bar, ")
    assert max(map(len, said.splitlines())) <= 120
