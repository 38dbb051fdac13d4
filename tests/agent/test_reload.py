"""Settings while the agent runs: a file, or a mounted ConfigMap."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sickbay.agent.reload import Config, needs_restart
from sickbay.errors import ConfigError
from sickbay.settings import AgentSettings


def a_config_map(folder: Path, version: str, **keys: str) -> None:
    """As the kubelet does it: a new folder, then one link is swapped, and every key is a link through it."""
    (folder / f"..{version}").mkdir(parents=True)
    for name, value in keys.items():
        (folder / f"..{version}" / name).write_text(value)
    (folder / "..data_tmp").symlink_to(f"..{version}")
    (folder / "..data_tmp").rename(folder / "..data")
    for name in keys:
        if not (folder / name).exists():
            (folder / name).symlink_to(f"..data/{name}")


def test_an_edit_of_a_mounted_config_map_is_picked_up(tmp_path: Path) -> None:
    """originals 002.12 #15: "picked up next cycle" was untrue, because keys were env and subPath."""
    a_config_map(tmp_path, "v1", CHECK_INTERVAL="120", CHECKS_LIGHTWEIGHT="0 2 3")
    config = Config(str(tmp_path), {})
    assert config.settings.agent.check_interval_s == 120.0
    assert config.settings.agent.light_checks == ("nvidia-smi", "efa-enumeration", "topology")
    assert not config.refresh()
    a_config_map(tmp_path, "v2", CHECK_INTERVAL="60", CHECKS_LIGHTWEIGHT="0")
    assert config.refresh()
    assert config.settings.agent.check_interval_s == 60.0


def test_a_bad_edit_keeps_the_last_good_settings_and_says_so(tmp_path: Path) -> None:
    """originals 002.12 #15"""
    a_config_map(tmp_path, "v1", CHECK_INTERVAL="120")
    config = Config(str(tmp_path), {})
    a_config_map(tmp_path, "v2", CHECK_INTERVAL="soon")
    assert not config.refresh()
    assert config.settings.agent.check_interval_s == 120.0
    assert "CHECK_INTERVAL" in config.trouble
    assert not config.refresh()
    assert config.trouble
    a_config_map(tmp_path, "v3", CHECK_INTERVAL="120")
    config.refresh()
    assert config.trouble == ""


def test_half_of_an_edit_is_never_applied(tmp_path: Path) -> None:
    a_config_map(tmp_path, "v1", CHECK_INTERVAL="120", DCGM_TIMEOUT="100")
    config = Config(str(tmp_path), {})
    a_config_map(tmp_path, "v2", CHECK_INTERVAL="60", DCGM_TIMEOUT="-1")
    config.refresh()
    assert (config.settings.agent.check_interval_s, config.settings.agent.dcgm_timeout_s) == (120.0, 100.0)


def test_the_folder_goes_before_the_frozen_environment(tmp_path: Path) -> None:
    a_config_map(tmp_path, "v1", CHECK_INTERVAL="120")
    config = Config(str(tmp_path), {"CHECK_INTERVAL": "300", "NODE_NAME": "node-7"})
    assert (config.settings.agent.check_interval_s, config.settings.agent.node_name) == (120.0, "node-7")


def test_a_whole_file_may_lie_in_the_folder_and_strange_keys_are_remarked(tmp_path: Path) -> None:
    (tmp_path / "sickbay.toml").write_text('cluster = "east-1"\n')
    (tmp_path / "CHECK_INTERVALL").write_text("60")
    config = Config(str(tmp_path), {})
    assert config.settings.cluster == "east-1"
    assert config.remarks == ("CHECK_INTERVALL: not a key the agent knows",)


def test_a_plain_file_is_read_again_too(tmp_path: Path) -> None:
    path = tmp_path / "sickbay.toml"
    path.write_text("[agent]\ncheck_interval_s = 120\n")
    config = Config(str(path), {})
    path.write_text("[agent]\ncheck_interval_s = 60\n")
    assert config.refresh()
    path.unlink()
    assert not config.refresh()
    assert "cannot be read" in config.trouble
    assert config.settings.agent.check_interval_s == 60.0


def test_at_the_start_a_bad_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "CHECK_INTERVAL").write_text("soon")
    with pytest.raises(ConfigError):
        Config(str(tmp_path), {})


def test_bytes_that_are_no_text_are_a_bad_edit(tmp_path: Path) -> None:
    a_config_map(tmp_path, "v1", CHECK_INTERVAL="120")
    config = Config(str(tmp_path), {})
    os.unlink(tmp_path / "CHECK_INTERVAL")
    (tmp_path / "CHECK_INTERVAL").write_bytes(b"\xff\xfe")
    assert not config.refresh()
    assert config.trouble


def test_what_only_a_start_can_change_is_named() -> None:
    assert needs_restart(AgentSettings(), AgentSettings(check_interval_s=60.0)) == ()
    assert needs_restart(AgentSettings(), AgentSettings(kmsg="/dev/other", publishers=("http",))) == (
        "kmsg",
        "publishers",
    )
