"""Profiles of a person's own, in the original suite's format and in ours."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.catalog import Profile, load
from sickbay.catalog.profile_file import read_profiles
from sickbay.errors import ConfigError
from tests.fuzzing import EXAMPLES

CONF = """
# TYPE|GPU|EFA|NVLINK|PROVIDER
p5.48xlarge | 8 | 32 | true | efa   # ours

g6.xlarge|1|0|false|efa
rack-7|16|4|TRUE|verbs
"""


def test_the_original_format_is_read_with_comments_blanks_and_spaces() -> None:
    p5, g6, rack = read_profiles(CONF, "instance-profiles.conf")
    assert [(p.type, p.gpus, p.efas) for p in (p5, g6, rack)] == [
        ("p5.48xlarge", 8, 32), ("g6.xlarge", 1, 0), ("rack-7", 16, 4),
    ]  # fmt: skip
    assert p5.source == "instance-profiles.conf, line 3"


def test_what_a_row_leaves_open_comes_from_our_row_of_that_type() -> None:
    p5, g6, rack = read_profiles(CONF, "instance-profiles.conf")
    ours = load().profiles["p5.48xlarge"]
    assert (p5.nvlink, p5.reboot_s, p5.nccl_local_min_gbs) == ("NV18", ours.reboot_s, ours.nccl_local_min_gbs)
    assert g6.nvlink == ""
    assert (rack.nvlink, rack.reboot_s, rack.replace_s) == ("NV", 1800.0, 3600.0)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("p5.48xlarge|8|32|true", "line 2: 4 columns instead of 5"),
        ("p5.48xlarge|eight|32|true|efa", "line 2: GPU is 'eight'"),
        ("p5.48xlarge|8|-1|true|efa", "line 2: EFA is '-1'"),
        ("p5.48xlarge|8|32|maybe|efa", "line 2: NVLINK is 'maybe'"),
        ("|8|32|true|efa", "line 2: TYPE is ''"),
        ("p5.48xlarge|8|32|true|", "line 2: PROVIDER is empty"),
        ("p5.48xlarge|99999|32|true|efa", "line 2: GPU is '99999'"),
        ("a|1|1|true|efa\na|1|1|true|efa", "line 3: a is there twice"),
    ],
)
def test_an_error_says_the_line_and_what_is_wrong(line: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_profiles(f"# ours\n{line}\n", "instance-profiles.conf")
    assert says in str(caught.value)
    assert "instance-profiles.conf" in str(caught.value)


def test_our_toml_may_change_one_figure_of_a_known_type() -> None:
    (p5,) = read_profiles('["p5.48xlarge"]\nreboot_s = 3000\n', "mine.toml")
    assert (p5.reboot_s, p5.gpus, p5.nvlink) == (3000.0, 8, "NV18")
    assert p5.source == "mine.toml, p5.48xlarge"


def test_our_toml_may_describe_a_type_nobody_knows() -> None:
    (rack,) = read_profiles('[rack-7]\ngpus = 16\nnvlink = "NV18"\n', "profiles")
    assert (rack.gpus, rack.nvlink, rack.efas, rack.reboot_s) == (16, "NV18", 0, 1800.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[rack-7]\ngpus = 'x'", "rack-7.gpus: missing or not a number"),
        ("[rack-7]\ngpu = 8", "rack-7.gpu: no such column"),
        ("gpus = 8", "gpus: not a table"),
        ("[rack-7", "not TOML"),
        ("[rack-7]\ngpus = 100000", "too many"),
    ],
)
def test_a_wrong_toml_says_where_and_what(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_profiles(text, "mine.toml")
    assert says in str(caught.value)


def test_an_empty_file_has_no_profiles() -> None:
    assert read_profiles("# nothing yet\n\n", "instance-profiles.conf") == ()


@given(st.text(alphabet=st.sampled_from('p5.48xlarge|truefalse0123456789 #\n[]="-'), max_size=200), st.booleans())
@settings(max_examples=EXAMPLES, deadline=None)
def test_fuzz_a_profile_file_is_read_or_refused_in_words(text: str, toml: bool) -> None:
    found: tuple[Profile, ...] = ()
    with suppress(ConfigError):
        found = read_profiles(text, "mine.toml" if toml else "mine")
    assert all(0 <= p.gpus <= 4096 and 0 <= p.efas <= 4096 and p.reboot_s >= 0 for p in found)
