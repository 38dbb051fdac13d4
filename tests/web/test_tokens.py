"""Who may speak for a node: whoever holds the token made for it, as long as its secret is accepted."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from sickbay.errors import UserError
from sickbay.web.tokens import Secrets, make, node_of
from tests.cli.builders import run_command
from tests.web.letters import CLUSTER, NODE, SECRET

OTHER = b"ffffffffffffffffffffffffffffffff"


def secret_file(folder: Path, *secrets: bytes, mode: int = 0o600) -> Path:
    path = folder / "secrets"
    path.write_bytes(b"\n".join(secrets) + b"\n")
    path.chmod(mode)
    return path


def test_a_token_speaks_for_its_node_in_its_cluster_and_for_nobody_else() -> None:
    token = make(SECRET, CLUSTER, NODE)
    assert node_of((SECRET,), CLUSTER, token) == NODE
    assert node_of((SECRET,), "another-cluster", token) is None
    assert node_of((OTHER,), CLUSTER, token) is None


def test_a_token_whose_node_was_exchanged_is_worth_nothing() -> None:
    mine, others = make(SECRET, CLUSTER, NODE), make(SECRET, CLUSTER, "node-0002")
    forged = ".".join((*others.split(".")[:2], mine.split(".")[2]))
    assert node_of((SECRET,), CLUSTER, forged) is None


def test_cluster_and_node_cannot_be_run_together() -> None:
    assert node_of((SECRET,), "lab-a", make(SECRET, "lab", "a-node")) is None
    assert make(SECRET, "ab", "c").split(".")[2] != make(SECRET, "a", "bc").split(".")[2]


@pytest.mark.parametrize(
    "token",
    ["", "v1", "v1..", "v2.bm9kZQ.00", "v1.!!!.00", "v1./w.00", "v1.bm9kZQ.é", "v1." + "A" * 5000 + ".00", "..."],
)
def test_what_is_no_token_is_refused_without_a_word(token: str) -> None:
    assert node_of((SECRET,), CLUSTER, token) is None


@pytest.mark.parametrize("node", ["", "n" * 300, "a\nb"])
def test_no_token_is_made_for_what_is_no_node(node: str) -> None:
    with pytest.raises(UserError, match="no node's name"):
        make(SECRET, CLUSTER, node)


def test_after_a_rotation_old_tokens_hold_until_their_line_is_removed(tmp_path: Path) -> None:
    path = secret_file(tmp_path, SECRET)
    secrets = Secrets(str(path))
    old = make(secrets.first(), CLUSTER, NODE)
    secret_file(tmp_path, OTHER, SECRET)
    new = make(secrets.first(), CLUSTER, NODE)
    assert new != old
    assert [node_of(secrets.all(), CLUSTER, token) for token in (old, new)] == [NODE, NODE]
    secret_file(tmp_path, OTHER)
    assert [node_of(secrets.all(), CLUSTER, token) for token in (old, new)] == [None, NODE]


def test_a_secret_file_that_breaks_while_we_run_is_told_of_and_the_last_good_one_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = secret_file(tmp_path, SECRET)
    secrets = Secrets(str(path))
    path.unlink()
    logging.getLogger("sickbay").propagate = True
    with caplog.at_level(logging.ERROR, "sickbay"):
        assert secrets.all() == secrets.all() == (SECRET,)
    assert caplog.text.count("cannot be read") == 1
    assert SECRET.decode() not in caplog.text


def test_a_secret_file_that_others_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("sickbay").propagate = True
    with caplog.at_level(logging.WARNING, "sickbay"):
        Secrets(str(secret_file(tmp_path, SECRET, mode=0o644)))
    assert "chmod 600" in caplog.text
    caplog.clear()
    Secrets(str(secret_file(tmp_path, SECRET)))
    assert not caplog.text


def test_comments_and_empty_lines_are_no_secrets(tmp_path: Path) -> None:
    assert Secrets(str(secret_file(tmp_path, b"# since May", b"", SECRET))).all() == (SECRET,)


@pytest.mark.parametrize(
    ("lines", "says"), [((b"# none",), "no secret"), ((b"short",), "guessed"), ((SECRET,) * 17, "16")]
)
def test_a_useless_secret_file_is_refused_with_what_to_do(tmp_path: Path, lines: tuple[bytes, ...], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Secrets(str(secret_file(tmp_path, *lines)))


def test_the_command_prints_a_token_that_the_ingest_accepts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = secret_file(tmp_path, SECRET)
    config = tmp_path / "sickbay.toml"
    config.write_text(f'cluster = "{CLUSTER}"\n[ingest]\nsecret_file = "{path}"\n')
    said = run_command(capsys, "token", NODE, "--config", str(config))
    assert said.code == 0
    assert node_of((SECRET,), CLUSTER, said.out.strip()) == NODE


def test_the_command_without_a_secret_says_how_to_make_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "HOME", str(tmp_path))
    said = run_command(capsys, "token", NODE)
    assert said.code == 2
    assert "ingest.secret_file is not set" in said.err
    assert "openssl rand" in said.err
