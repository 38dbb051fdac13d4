"""From an agent's letter to an open case: the real controller process, real HTTP on loopback, a simulated fleet whose
own agents are silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sickbay.controller import app, sites
from sickbay.model import Case, Report
from sickbay.platforms.reported import ReportedFleet
from sickbay.platforms.simulated.paced import PacedClock, PacedFleet
from sickbay.ports import Platform
from sickbay.settings import IngestSettings, Settings
from sickbay.sim.world import World
from sickbay.stores.memory import MemoryStore
from sickbay.web.tokens import make
from tests.web.letters import CLUSTER, SECRET, a_report, body, xid_79
from tests.web.posting import Answered, post

PATIENCE_S = 30.0


pytestmark = pytest.mark.usefixtures("own_log")


class Shop:
    """The controller process in a thread, as `sickbay controller run` composes it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World(5, 4)
        for node in self.world.nodes.values():
            self.world.agents.silence(node)
        self.store, self.stop, self.ports = MemoryStore(CLUSTER), threading.Event(), list[int]()
        (folder / "secrets").write_bytes(SECRET)
        (folder / "secrets").chmod(0o600)
        self.settings = Settings(
            cluster=CLUSTER, data_dir=str(folder),
            ingest=IngestSettings(listen="127.0.0.1:0", secret_file=str(folder / "secrets")),
        )  # fmt: skip
        opens = app.open_ingest

        def opened(*args: object) -> app.Served:
            served = opens(*args)  # type: ignore[arg-type]
            self.ports.append(served.port)
            return served

        monkeypatch.setattr(app, "open_ingest", opened)
        monkeypatch.setattr(app, "open_store", lambda _: self.store)
        monkeypatch.setitem(sites.PLATFORMS, "simulated", self._site)
        self.thread = threading.Thread(target=app.run, args=(self.settings, self.stop))

    def _site(self, _: Settings, __: sites.Trial) -> sites.Site:
        clock = PacedClock()
        fleet = PacedFleet(self.world, clock)
        return sites.Site(fleet, clock, 1.0, fleet.close)

    def post(self, report: Report, token: str) -> Answered:
        """Until it leads: agents try again, too."""
        until(lambda: self.ports)
        while (answer := post(self.ports[0], body(report), token)).status == 503:
            threading.Event().wait(0.02)
        return answer

    def boot(self, node: str) -> str:
        return self.world.nodes[node].boot_id

    def cases(self) -> list[Case]:
        return [stored.value for stored in self.store.list(Case)]


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came true"
        threading.Event().wait(0.01)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    shop = Shop(tmp_path, monkeypatch)
    shop.thread.start()
    yield shop
    shop.stop.set()
    shop.thread.join(20)
    assert not shop.thread.is_alive()


def test_a_lost_gpu_in_an_agents_report_opens_a_case_and_a_forged_one_nothing(shop: Shop) -> None:
    node, other = "node-0001", "node-0002"
    lost = a_report(xid_79(node=other, boot=shop.boot(other)), node=other, boot=shop.boot(other))
    forged = make(b"not the secret, sorry", CLUSTER, other)
    assert shop.post(lost, forged).status == 403
    assert shop.post(lost, make(SECRET, CLUSTER, node)).status == 403  # the right secret, another node's token
    letter = a_report(xid_79(boot=shop.boot(node)), node=node, boot=shop.boot(node))
    for _ in range(3):  # an agent that got no answer sends it again
        assert shop.post(letter, make(SECRET, CLUSTER, node)).status == 200
    until(shop.cases)
    (case,) = shop.cases()
    assert (case.node, case.diagnoses[0].fault, case.diagnoses[0].source) == (node, "gpu-lost", "agent")
    assert "fallen off the bus" in case.diagnoses[0].because[0]
    later = replace(letter, sequence=2)
    assert shop.post(later, make(SECRET, CLUSTER, node)).status == 200
    assert [c.id for c in shop.cases()] == [case.id]


def test_reports_and_the_platform_meet_from_two_threads_and_none_is_lost() -> None:
    """Many reports while the platform changes the same nodes: the last of each is what the view ends with."""
    world = World(5, 4)
    clock = PacedClock()
    fleet = PacedFleet(world, clock)
    reported = ReportedFleet(fleet, clock)
    door: Platform = reported
    from sickbay.controller.view import View

    view, rounds = View(), 200
    stop = door.watch(view.apply)
    view.replace_all(door.observe())

    def people() -> None:
        for n in range(rounds):
            with fleet._lock:
                (world.people.cordon if n % 2 == 0 else world.people.uncordon)("node-0001")
                world.flush()
        with fleet._lock:
            world.people.cordon("node-0001")
            world.flush()

    def agent() -> None:
        boot = world.nodes["node-0001"].boot_id
        for n in range(1, rounds + 1):
            reported.report(a_report(xid_79(n, boot=boot), boot=boot, sequence=n))

    threads = [threading.Thread(target=work) for work in (people, agent)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    stop()
    fleet.close()
    node = view.nodes["node-0001"]
    assert node.cordoned
    assert [f.id.rpartition("/")[2] for f in node.findings] == [str(rounds)]
