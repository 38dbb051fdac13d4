"""`sickbay config check FILE` and `sickbay config show`: what the settings are, and what is wrong with them.

Called by a person before a controller is started. It only reads. Exit codes: 0 good, 2 something is wrong.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from sickbay import settings_rules as rules
from sickbay.errors import ConfigError
from sickbay.settings import LEVELS, Settings
from sickbay.settings_load import ConfigProblems, Loaded, flat, hasty, load, unkept

WRONG = 2

app = typer.Typer(no_args_is_help=True, help="Check the settings, or show each with where it came from.")


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The TOML file.")]) -> None:
    """Say everything that is wrong with a settings file: where, what, and what would be right."""
    loaded = _loaded(file, environ={})
    print(f"{file}: good. {_summary(loaded.settings)}")
    for words in (*hasty(loaded.settings), *unkept(loaded.settings)):
        print(f"note: {words}")


@app.command()
def show(
    config: Annotated[Path | None, typer.Option("--config", help="The TOML file; SICKBAY_CONFIG if not given.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object: key -> value and where it came from.")
    ] = False,
) -> None:
    """Print every setting in force, and where it came from: default, file and line, or a variable."""
    loaded = _loaded(config, environ=None)
    print(_json(loaded) if as_json else _table(loaded))


def _loaded(file: Path | None, environ: dict[str, str] | None) -> Loaded:
    try:
        return load(file, environ)
    except ConfigError as error:
        problems = error.problems if isinstance(error, ConfigProblems) else (error,)
        for problem in problems:
            print(problem, file=sys.stderr)
        print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}.", file=sys.stderr)
        raise typer.Exit(WRONG) from None


def _summary(settings: Settings) -> str:
    """How far it lets us go, for whoever meant to allow less."""
    levels = [("everywhere", settings.policy.max_verb)]
    if settings.pools:
        levels = [("other pools", settings.policy.max_verb)]
        levels = [(f"pool {name}", policy.max_verb) for name, policy in settings.pools.items()] + levels
    said = "May go as far as: " + ", ".join(f"{verb} ({where})" for where, verb in levels) + "."
    shut = [where for where, verb in levels if verb == LEVELS[0]]
    if settings.kubernetes.gate and shut:
        said += f" kubernetes.gate is on, but at {LEVELS[0]} ({', '.join(shut)}) nobody could open it: no gate there."
    return said


def _table(loaded: Loaded) -> str:
    from sickbay.settings_doc import words

    values = {key: words(_public(key, value)) for key, value in flat(loaded.settings).items()}
    wide = max(map(len, values))
    across = min(max(map(len, values.values())), 40)
    return "\n".join(f"{key:<{wide}}  {value:<{across}}  {loaded.origins[key]}" for key, value in values.items())


def _json(loaded: Loaded) -> str:
    import msgspec

    rows = {
        key: {"value": msgspec.to_builtins(_public(key, value), order="sorted"), "from": loaded.origins[key]}
        for key, value in flat(loaded.settings).items()
    }
    return json.dumps(rows, indent=2)


def _public(key: str, value: Any) -> Any:
    """An address with a token in it is a credential: its host says enough."""
    if key not in rules.SECRET or not value:
        return value
    return f"{urlsplit(value).scheme}://{urlsplit(value).hostname or '?'}/***"
