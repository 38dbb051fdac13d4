"""The thread that follows the kernel log: overruns, endings, blindness, and events that others drop."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.agent.ear import Ear
from sickbay.agent.events import FOLDER, Event, Inbox, decoded, drop
from sickbay.agent.follower import Follower
from sickbay.agent.kmsg import Batch
from sickbay.agent.process import Agent
from sickbay.agent.pulse import Pulse
from sickbay.agent.reload import Config
from sickbay.model import Status
from sickbay.sim.host import SimHost
from sickbay.sim.world import World
from tests.agent.builders import BOOT, XID_79, Heard, a_station
from tests.fuzzing import EXAMPLES

PATIENCE_S = 20.0


class Script:
    """A source that hands out these batches, one a wake-up, and then is silent."""

    def __init__(self, *batches: Batch) -> None:
        self.batches = list(batches)
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.write(self._write, b"x" * len(batches))

    def fileno(self) -> int:
        return self._read

    def read(self) -> Batch:
        if not self.batches:
            return Batch()
        os.read(self._read, 1)
        return self.batches.pop(0)

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


class Noted(Heard):
    """What was told, to be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.news = threading.Condition()

    def __call__(self, *told: object) -> None:
        with self.news:
            super().__call__(*told)  # type: ignore[arg-type]
            self.news.notify_all()

    def wait(self, holds: Callable[[], bool]) -> bool:
        with self.news:
            return self.news.wait_for(holds, PATIENCE_S)


@pytest.fixture
def heard() -> Noted:
    return Noted()


@pytest.fixture
def follow(tmp_path: Path, heard: Noted) -> Iterator[Callable[..., Follower]]:
    begun: list[Follower] = []

    def start(*sources: Script | OSError) -> Follower:
        left = list(sources)

        def opened(cursor: str) -> Script:
            source = left.pop(0) if left else Script()
            if isinstance(source, OSError):
                raise source
            return source

        follower = Follower(opened, a_station(tmp_path, heard), Pulse())
        begun.append(follower)
        follower.start()
        return follower

    yield start
    for follower in begun:
        follower.stop()
        follower.join(PATIENCE_S)
        assert not follower.is_alive()


def test_an_overrun_is_a_remark_that_says_how_many_were_lost(follow: Callable[..., Follower], heard: Noted) -> None:
    follow(Script(Batch([XID_79 % 500], cursor=f"{BOOT}:500", lost=99)))
    assert heard.wait(lambda: bool(heard.reports))
    found = {finding.code: finding for finding in heard.reports[-1].findings}
    assert found["kernel.log-overrun"].status is Status.DEGRADED
    assert "99 record(s)" in found["kernel.log-overrun"].reason
    assert "xid.79" in found


def test_a_source_that_ends_is_opened_anew(follow: Callable[..., Follower], heard: Noted) -> None:
    follow(Script(Batch(ended=True)), Script(Batch([XID_79 % 7], cursor=f"{BOOT}:7")))
    assert heard.wait(lambda: bool(heard.reports) and "xid.79" in heard.codes())


def test_a_log_that_cannot_be_read_is_unknown_and_said_until_it_can(
    follow: Callable[..., Follower], heard: Noted
) -> None:
    follow(OSError(13, "Permission denied"), Script())
    assert heard.wait(lambda: len(heard.reports) == 2)
    blind, again = (report.findings[0] for report in heard.reports)
    assert (blind.status, again.status) == (Status.UNKNOWN, Status.OK)
    assert "Permission denied" in blind.reason
    assert all(verdict.status == "unknown" for verdict in heard.verdicts)


def test_our_own_mistake_does_not_end_the_following(
    follow: Callable[..., Follower], heard: Noted, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Script):
        def read(self) -> Batch:
            raise ZeroDivisionError

    follow(Broken(), Script(Batch([XID_79 % 7], cursor=f"{BOOT}:7")))
    assert heard.wait(lambda: bool(heard.reports) and "xid.79" in heard.codes())
    assert "opened anew" in caplog.text


# --- events -----------------------------------------------------------------------------------------------------------


def an_agent(folder: Path) -> Agent:
    world = World(1, 1)
    config = Config("", {"SICKBAY_AGENT__STATE_DIR": str(folder), "SICKBAY_AGENT__PUBLISHERS": "textfile"})
    return Agent(config, SimHost(world, next(iter(world.nodes.values()))))


def test_a_reset_ends_what_a_reset_ends_and_the_file_goes(tmp_path: Path) -> None:
    agent = an_agent(tmp_path)
    uncontained = b"3,1,1,-;NVRM: Xid (PCI:0000:3b:00): 95, pid=1, Uncontained: FBHUB. RST: Yes, D-RST: No"
    agent.station.kernel([*Ear().hear([uncontained], 0.0), *Ear().hear([XID_79 % 2], 0.0)], "")
    drop(tmp_path, Event("reset", ("0000:3b:00",), "controller"))
    agent._obey()
    assert [v.finding.code for v in agent.station.chart.verdicts.latched] == ["xid.79"]
    assert os.listdir(tmp_path / FOLDER) == []


def test_an_event_dropped_while_the_agent_was_down_waits_for_it(tmp_path: Path) -> None:
    drop(tmp_path, Event("clear", (), "alice", "reseated"))
    assert [event.why for _, event in Inbox(tmp_path).new()] == ["reseated"]


def test_what_is_no_event_is_moved_aside_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "1.json").write_text('{"kind": "explode"}')
    assert list(Inbox(tmp_path).new()) == []
    assert os.listdir(tmp_path / FOLDER) == ["1.json.unreadable"]
    assert "explode" in caplog.text


@settings(max_examples=EXAMPLES)
@given(
    st.one_of(st.binary(max_size=60), st.sampled_from([b'{"kind":"clear","devices":7}', b"[]", b'{"kind":["clear"]}']))
)
def test_fuzz_no_content_of_the_events_folder_stops_an_agent(data: bytes) -> None:
    assert isinstance(decoded(data), str)
