"""How much at once: nodes out of service, nodes under treatment, grants and hurt jobs in a window.

Each limit is worked out here from the settings' own words and counted on the world: no number comes from the brain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

from sickbay.catalog import load
from sickbay.model import Case, When
from sickbay.settings import Limit
from sickbay.sim.checkers.checker import OURS, Checker, case_of
from sickbay.sim.checkers.consent import verb_of
from sickbay.sim.checkers.diary import Seen
from sickbay.sim.hardware import SimNode
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

LOST_S = 1800.0  # a REPLACE may take so long where the instance type has no profile (catalog/profiles.toml)
PASS_S = 1.0  # what one pass does happens within this
SEEN_S = 720.0  # a view of the fleet may be ten minutes old, and what changed since two minutes late
REWRITTEN_S = 300.0  # by then whoever leads has missed a Ledger that was deleted
DATED_S = 120.0  # how far the judge's date of a decision may be off: two turns


def most_of(limit: Limit, total: int) -> int:
    """At most `count` and at most `percent`, the smaller; but `at_least`, for ten percent of five nodes is still one.
    A zero that somebody wrote means none."""
    share = min(limit.count, int(total * limit.percent / 100.0))
    return max(share, min(limit.at_least, total)) if limit.percent and limit.count else 0


def _number(case: str) -> int:
    return int(case.rpartition(".")[2])


UNHEARD_S = 60.0  # after its own release a case may not know of it


class _LetGo(Checker):
    """Knows of whom people have let go: then a machine that went and has no successor fills no place any more."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._deleted: set[str] = set()

    def fact(self, fact: Fact) -> None:
        if fact.kind == "person" and fact.detail["act"] == "delete-record":
            self._deleted.add(str(fact.detail["case"]))

    def was_let_go(self, node: str, case: str) -> bool:
        """In this case or in a later one: the machine that came in its place may have gone as well."""
        if any(_number(deleted) >= _number(case) for deleted in self._deleted if deleted.startswith(f"{node}.")):
            return True  # somebody deleted its record: that is a cancel
        ended = [c for c in self.run.store.history(Case, node=node) if _number(c.id) >= _number(case)]
        return any(entry.event == "CANCELLED" and entry.by != OURS for c in ended for entry in c.journal)


class WithinLimits(_LetGo):
    """Nodes that were in service when we closed them never exceed `max_out`, `max_out_fleet`, `max_out_rack` and
    `max_out_domain`."""

    floor: ClassVar[float] = 420.0
    branches: ClassVar[Mapping[str, float | str]] = {
        "fleet": 130.0, "pool": 130.0, "rack": 130.0, "domain": 30.0,
        "fleet beside others": 3.3, "pool beside others": 2.5, "rack beside others": 0.2,
        "domain beside others": "a seed's domains are small: who is down there leaves hardly anybody to be closed",
    }  # fmt: skip

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._taken: dict[str, str] = {}
        self._adopted: dict[str, str] = {}  # node -> the case that took over an older mark of ours
        self._at: dict[str, float] = {}
        self._released: dict[str, tuple[str, float]] = {}  # node -> by which case, and when
        self._down: dict[str, float] = {}  # out by others' doing -> since when
        # machines that we gave back, and when: whoever comes in their place is out too
        self._exchanged: dict[str, float] = {}

    def fact(self, fact: Fact) -> None:
        super().fact(fact)
        self._note_others(fact)
        if fact.kind == "treat-start" and fact.detail["verb"] == "REPLACE" and fact.node in self._taken:
            self._exchanged[fact.node] = fact.t
        if fact.kind == "etcd-restored":  # a machine that went leaves nothing that would tell of it
            forgotten = self.forgotten_since(fact)
            self._exchanged = {name: at for name, at in self._exchanged.items() if at < forgotten}
        if fact.kind == "person" and fact.detail["act"] == "terminate":
            self._taken.pop(fact.node, None)
        own = fact.kind == "release" and fact.detail.get("case") == self._adopted.get(
            fact.node
        )  # perhaps unheard (1108)
        opened = fact.kind in ("release", "joined") or (fact.kind == "person" and fact.detail["act"] == "uncordon")
        if opened and not own:
            self._adopted.pop(fact.node, None)
        if fact.kind == "release":
            self._exchanged.pop(fact.node, None)
            self._released[fact.node] = str(fact.detail["case"]), fact.t
        if fact.kind == "cordon":
            self._judge(fact)

    def _judge(self, fact: Fact) -> None:
        node = self.world.nodes[fact.node]
        nodes = self.world.nodes
        if was := fact.detail.get("was"):  # a mark without a record is adopted: the node was closed before
            self._adopted[fact.node] = str(fact.detail["case"])
            if self._taken.get(fact.node) == was:
                self._taken[fact.node] = str(fact.detail["case"])
            return
        released, at = self._released.get(fact.node, ("", 0.0))
        if released == fact.detail["case"] and fact.t - at <= UNHEARD_S:
            return  # the answer got lost, and its place was not given back (seeds 1108, 50001563)
        if self._adopted.get(fact.node) == fact.detail["case"]:
            return  # its object went with the mark, and came back without it
        self._taken = {n: c for n, c in self._taken.items() if self._is_out(nodes[n], c)}
        up = node.ready and not node.others and not node.gate
        if up and self._taken.get(fact.node) != fact.detail["case"]:
            self._taken[fact.node], self._at[fact.node] = str(fact.detail["case"]), fact.t
            self._count(fact, node)

    def _note_others(self, fact: Fact) -> None:
        """Who is out by nobody's doing of ours: does not answer, or is held by somebody."""
        if fact.kind == "not-ready" or (fact.kind == "person" and fact.detail["act"] == "cordon"):
            self._down.setdefault(fact.node, fact.t)
        if fact.kind in ("ready", "boot", "joined") or (fact.kind == "person" and fact.detail["act"] == "uncordon"):
            self._down.pop(fact.node, None)

    def _is_out(self, node: SimNode, case: str) -> bool:
        """By our doing: not where its provider took the machine away or a person has opened it again or let it go."""
        if node.name in self._exchanged and (node.gone or node.gate):
            return not self.was_let_go(node.name, case)
        return node.mark == case and node.present and node.closed

    def _others(self, fact: Fact) -> set[str]:
        """Out by others' doing, for so long that it was known when this node was taken. What cannot wait has places of
        its own, which those do not fill."""
        case = self.judge.as_it_is(case_of(fact))
        if case is None or self.judge.told.soonest(case) is When.NOW or self.world.nodes[fact.node].stuck:
            return set()
        known = self.judge.diary.granted(case.id, "", Seen(fact.t, 0.0, When.IDLE)).at - SEEN_S
        nodes = self.world.nodes
        down = {name for name, since in self._down.items() if since <= known}
        return {name for name in down if nodes[name].present and (not nodes[name].ready or nodes[name].others)}

    def _count(self, fact: Fact, node: SimNode) -> None:
        """Of several that one pass took out, the judge does not know who came first: there must be one order in which
        each of them fitted."""
        others = self._others(fact)
        scopes: list[tuple[str, str, Callable[[SimNode], bool]]] = [
            ("fleet", "max_out_fleet", lambda n: True),
            ("pool", "max_out", lambda n: n.pool == node.pool),
            ("rack", "max_out_rack", lambda n: n.rack == node.rack),
        ]
        if node.domain:
            scopes.append(("domain", "max_out_domain", lambda n: n.domain == node.domain))
        for scope, setting, belongs in scopes:
            members = [n for n in self.world.nodes.values() if belongs(n)]
            taken = [n.name for n in members if n.name in self._taken]
            now = [name for name in taken if fact.t - self._at[name] <= PASS_S]
            most = sorted(most_of(getattr(self.policy_of(name), setting), len(members)) for name in now)
            before = len(taken) - len(now)
            fits = all(before + i <= limit for i, limit in enumerate(most, 1))
            words = f"{len(taken)} nodes of the {scope} taken out ({', '.join(taken)}), too many"
            self.expect(fits, fact, words, scope)
            out = sorted({n.name for n in members} & others - set(taken))
            limit = most_of(getattr(self.policy_of(node.name), setting), len(members))
            words = f"{node.name} taken out of the {scope} beside {', '.join([*taken, *out])}, at most {limit}"
            if out:
                self.expect(len(taken) + len(out) <= limit, fact, words, f"{scope} beside others")


class TreatedFewAtOnce(_LetGo):
    """Nodes of a pool under treatment at the same time never exceed `at_once`."""

    floor: ClassVar[float] = 200.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._treated: dict[str, str] = {}  # node -> key
        self._since: dict[str, float] = {}
        self._replaced: set[str] = set()

    def fact(self, fact: Fact) -> None:
        super().fact(fact)
        if fact.kind == "treat-end" and self._treated.get(fact.node) == fact.detail["key"]:
            del self._treated[fact.node]
        if fact.kind == "person" and fact.detail["act"] == "terminate":
            self._treated.pop(fact.node, None)
        if fact.kind == "etcd-restored":  # what was sent is unsent there
            forgotten = self.forgotten_since(fact)
            self._treated = {name: key for name, key in self._treated.items() if self._since[name] < forgotten}
        if fact.kind == "treat-start":
            self._treated[fact.node], self._since[fact.node] = str(fact.detail["key"]), fact.t
            (self._replaced.add if fact.detail["verb"] == "REPLACE" else self._replaced.discard)(fact.node)
            self._forget_lost(fact.t)
            self._count(fact)

    def _forget_lost(self, now: float) -> None:
        """A machine that was to be replaced, and has had no successor for longer than that takes, is lost capacity:
        nobody treats it any more. Nor one that a person let go meanwhile."""
        for name in [n for n in self._treated if self.world.nodes[n].gone or n in self._replaced]:
            since, profile = self._since[name], load().profiles.get(self.world.nodes[name].kind)
            lasts_s = profile.replace_s if profile else LOST_S
            over = now - since >= lasts_s - DATED_S - self.judge.leapt_s(since)
            if over or self.was_let_go(name, self._treated[name].rsplit("/", 1)[0]):
                del self._treated[name]

    def _count(self, fact: Fact) -> None:
        pool = {n.name for n in self.world.nodes.values() if n.pool == self.world.nodes[fact.node].pool}
        busy, most = sorted(pool & set(self._treated)), most_of(self.policy_of(fact.node).at_once, len(pool))
        words = f"{len(busy)} nodes are treated at the same time ({', '.join(busy)}), at most {most}"
        self.expect(len(busy) <= most, fact, words)


class _Windowed(Checker):
    """Counts what was done, each dated twice: when it was allowed and when it happened. Only what lies within the
    window by both counts, for a call may come late and a decision may be old. A Ledger that is deleted can be made
    again from the journals of cases. Who deletes it and the record of a case has deleted all that is known of what that
    case had, unless somebody leads who knows the Ledger and writes it again."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._done: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
        self._lost: set[str] = set()  # cases whose record somebody deleted
        self._deleted = float("-inf")  # the Ledger; infinite once somebody has written it again
        self._forgotten = float("-inf")  # nobody knows what was done before

    def fact(self, fact: Fact) -> None:
        if fact.kind == "person" and fact.detail["act"] == "delete-ledger":
            self._forgotten = self._deleted = fact.t
        if fact.kind == "person" and fact.detail["act"] == "delete-record":
            self._lost.add(str(fact.detail["case"]))

    def moment(self) -> None:
        """Whoever led when it was deleted, and leads for minutes after that, has written it again."""
        led = [brain.led_since for brain in self.run.brains if brain.led_since is not None]
        if self._forgotten == self._deleted and self.world.now >= self._deleted + REWRITTEN_S:
            self._forgotten = float("-inf") if any(since <= self._deleted for since in led) else self._deleted
            self._deleted = float("inf")

    def count(self, fact: Fact, name: str, window_s: float, key: str = "") -> int:
        now = Seen(fact.t, self.run.clock.now(), When.NOW)
        allowed = self.judge.diary.granted(case_of(fact), key, now).at
        self._done[name].append((allowed, fact.t, case_of(fact)))
        least = window_s - DATED_S - self.judge.leapt_s(fact.t - window_s)
        known = [(a, d) for a, d, case in self._done[name] if d >= self._forgotten or case not in self._lost]
        return sum(1 for a, d in known if allowed - a < least and fact.t - d < least)


class FewInAWindow(_Windowed):
    """Cordons, treatments and drains that evict work within `window_s` never exceed `per_window` of their verb, in each
    pool; 0 means none."""

    floor: ClassVar[float] = 300.0
    branches: ClassVar[Mapping[str, float | str]] = {
        "CORDON": 130.0, "DRAIN": 0.05, "RESET_GPU": 50.0, "REBOOT": 60.0, "POWER_CYCLE": 23.0, "REPLACE": 34.0,
    }  # fmt: skip

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._closed: dict[str, str] = {}
        self._emptied: set[str] = set()  # DRAINING of a case, by its step: what lands there meanwhile goes as well

    def fact(self, fact: Fact) -> None:
        super().fact(fact)
        verb, node = verb_of(fact), self.world.nodes.get(fact.node)
        if not verb or node is None or not self._took(fact, node):
            return
        most = self.policy_of(fact.node).per_window.get(verb)
        if most is None:
            return
        key = str(fact.detail.get("key", ""))
        if fact.kind == "drain":
            key = self._drain_of(fact)
            if key in self._emptied:
                return
            self._emptied.add(key)
        self._judge(fact, f"{node.pool}/{verb}", most, key)

    def _judge(self, fact: Fact, name: str, most: int, key: str) -> None:
        policy, (pool, _, verb) = self.policy_of(fact.node), name.rpartition("/")
        made = self.count(fact, name, policy.window_s, key)
        words = f"{made} {verb} in pool {pool} within {policy.window_s / 60:.0f} minutes, at most {most}"
        self.expect(made <= most, fact, words, verb)

    def _drain_of(self, fact: Fact) -> str:
        """As the key of an action. A case is drained in the step in which it is written now: at once."""
        case = self.judge.as_it_is(case_of(fact))
        return f"{case_of(fact)}/{case.step if case else 0}"

    def _took(self, fact: Fact, node: SimNode) -> bool:
        """A node that was out already takes no place by being closed, nor one that its own case closes again."""
        if fact.kind != "cordon":
            return True
        case, first = str(fact.detail["case"]), fact.node not in self._closed
        again = self._closed.get(fact.node) == case or "was" in fact.detail
        self._closed[fact.node] = case
        return node.ready and not node.others and not node.gate and ((first and "was" not in fact.detail) or not again)


class FewJobsHurt(_Windowed):
    """Jobs that our drains stop for faults that could have waited never exceed `jobs_hurt_per_window`."""

    floor: ClassVar[float] = 3.0

    def fact(self, fact: Fact) -> None:
        super().fact(fact)
        if fact.kind != "drain" or fact.detail["job"] == "-":
            return
        case = self.judge.as_it_is(case_of(fact))
        at_first = self.judge.diary.taken.get(case_of(fact))
        if case is None or self.judge.told.soonest(case) is When.NOW or (at_first and at_first.when is When.NOW):
            return
        policy = self.policy_of(fact.node)
        hurt = self.count(fact, "fleet", policy.window_s)
        most = policy.jobs_hurt_per_window
        words = f"our drains stopped {hurt} jobs within {policy.window_s / 60:.0f} minutes, at most {most}"
        self.expect(hurt <= most, fact, words)
