"""PCI device ids of GPUs, as data: pci_gpus.toml beside this file. For `identity/pci`, which guesses a node's type."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType


@lru_cache(maxsize=1)
def models() -> Mapping[str, str]:
    """Device id, four hex digits in small letters -> GPU model."""
    text = files("sickbay.catalog").joinpath("pci_gpus.toml").read_text("utf-8")
    return MappingProxyType(dict(tomllib.loads(text)["models"]))
