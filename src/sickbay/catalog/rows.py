"""One table of a catalog file, with typed access that knows how to complain. Used only by `reading`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sickbay.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """`name` is the row as a reader would look for it; every complaint carries file, row and column."""

    file: str
    name: str
    data: Mapping[str, Any]

    def wrong(self, key: str, wrong: str, right: str) -> ConfigError:
        return ConfigError(self.file, f"{self.name}.{key}" if key else self.name, wrong, right)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.data.get(key, default)
        if not isinstance(value, str) or (default is None and not value):
            raise self.wrong(key, f"missing or not text: {value!r}", f'write {key} = "..."')
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise self.wrong(key, f"missing or not a number >= 0: {value!r}", f"write {key} = 120")
        return value

    def whole(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if not isinstance(value, int):
            raise self.wrong(key, f"not a whole number: {value!r}", f"write {key} = 1")
        return value

    def flag(self, key: str) -> bool:
        value = self.data.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, f"not true or false: {value!r}", f"write {key} = true")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.data.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, f"missing or not a list of texts: {value!r}", f'write {key} = ["..."]')
        return tuple(value)

    def word(self, key: str, words: Mapping[str, T]) -> T:
        value = self.text(key)
        if value not in words:
            raise self.wrong(key, f"{value!r} is not known", "one of " + ", ".join(words))
        return words[value]

    def only(self, allowed: frozenset[str]) -> None:
        unknown = self.data.keys() - allowed
        if unknown:
            raise self.wrong(min(unknown), "no such column", "one of " + ", ".join(sorted(allowed)))
