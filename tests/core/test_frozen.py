"""A changed copy is what dataclasses.replace would have made."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sickbay import model
from sickbay.core.frozen import replace
from sickbay.model import Seat, Status

EVERY = [kind for kind in vars(model).values() if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
KINDS = [kind for kind in EVERY if len(dataclasses.fields(kind)) > 1]
SEAT = Seat("n1.1", "n1", "out", "CORDON", "default", "", "", 5.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_has_every_field_of_the_value_but_those_that_changed(kind: type[Any]) -> None:
    names = [field.name for field in dataclasses.fields(kind)]
    value = kind(**{name: f"old {name}" for name in names})
    for name in names:
        assert replace(value, **{name: "new"}) == dataclasses.replace(value, **{name: "new"})
    assert value == kind(**{name: f"old {name}" for name in names})


def test_a_copy_is_frozen_too() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        replace(SEAT, since=6.0).since = 7.0  # type: ignore[misc]


def test_a_field_that_the_value_has_not_is_refused() -> None:
    with pytest.raises(TypeError, match="Seat has no field phase"):
        replace(SEAT, phase=Status.OK)  # type: ignore[call-arg]


def test_a_value_of_one_field_is_refused_and_never_copied_wrongly() -> None:
    with pytest.raises(TypeError, match="one field"):
        replace(model.Lost("x"), why="y")
