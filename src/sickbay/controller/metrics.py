"""The controller seen from outside: /metrics in Prometheus' form, with the probes beside it. Names: docs/metrics.md.

A scrape reads: small copies of the view's indexes (one step each under the GIL), the Ledger as it stands, and what
controller/accounts.py has counted. It takes no lock, so it never delays a pass. Labels are few: no node's name is one.
Opened by controller/app.py when controller.listen is set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from sickbay import __version__
from sickbay.controller.accounts import Accounts, fault_of, kind_of, reason_of
from sickbay.controller.families import counter, counts, floats, gauge, histogram, one
from sickbay.controller.job_accounts import largest
from sickbay.controller.loop import Controller
from sickbay.controller.vitals import Vitals
from sickbay.core import admit, spans
from sickbay.kube import traffic
from sickbay.model import Case, Node, Phase, Recovery, RecoveryPhase
from sickbay.pages import More, Page, Pages
from sickbay.settings import Settings

MOST_POOLS = 200
MOST_JOBS = 200  # jobs that are shown by name: those with the most GPUs
STATES = ("ok", "watched", "gate", "cordoned", "not_ready", "in_care", "escalated")
UNTOUCHED = (Phase.SUSPECTED, Phase.WAITING)  # a case that has not taken the node out of service


class Figures:
    """What a scrape sees. prometheus_client calls `collect`."""

    def __init__(
        self, settings: Settings, accounts: Accounts, vitals: Vitals, now: Callable[[], float],
        leading: Callable[[], Controller | None],
    ) -> None:  # fmt: skip
        self._settings, self._accounts, self._vitals, self._now = settings, accounts, vitals, now
        self._leading = leading

    def collect(self) -> Iterator[Metric]:
        yield from self._process()
        yield from self._cases_so_far()
        yield from self._jobs_so_far()
        controller = self._leading()
        if controller is not None:  # who does not lead does not know the fleet: absent, never 0
            yield from self._nodes(controller)
            yield from self._cases(controller)
            yield from self._limits(controller)
            yield from self._recoveries(controller)
            yield from self._jobs()

    # -- the process

    def _process(self) -> Iterator[Metric]:
        a, controller = self._accounts, self._leading()
        yield gauge("sickbay_controller_info", "Which controller this is.", ["version", "cluster"],
                     [((__version__, self._settings.cluster), 1.0)])  # fmt: skip
        yield one("sickbay_leading", "1 while this process leads.", float(controller is not None))
        yield counter("sickbay_leads", "Times this process took the lead.", [], a.leads)
        if controller is not None:
            yield one("sickbay_leader_epoch", "Epoch of this lead.", controller.records.epoch)
        yield histogram("sickbay_pass_seconds", "How long a pass of the loop took.", [], a.passes)
        yield counter("sickbay_mishaps", "Passes that broke, by what broke.", ["what"], a.mishaps)
        yield counter("sickbay_contained", "Errors of ours kept from the rest of a pass.", ["what"], a.contained)
        if controller is not None:
            alone = Counter(who.partition(" ")[0] for who in controller.containment.unattended())
            rows = [((kind,), float(alone[kind])) for kind in ("node", "job")]
            yield gauge("sickbay_unattended", "Left alone because of an error of ours.", ["what"], rows)
        age = self._vitals.watch_age_s()
        if age is not None:
            yield one("sickbay_watch_age_seconds", "Since the API server last said anything of nodes or pods.", age)
        yield counter("sickbay_store_writes", "Records written.", ["record"], a.store_writes)
        yield counter("sickbay_store_errors", "Writes and reads of the store that failed.", ["what"], a.store_errors)
        requests = [(labels, float(count)) for labels, count in traffic.requests()]
        yield counts("sickbay_api_requests", "Requests to the API server.", ["verb", "status"], requests)
        yield counter("sickbay_notices", "Notices handed to a notifier.", ["notifier", "outcome"], a.notices)

    # -- what was counted

    def _cases_so_far(self) -> Iterator[Metric]:
        a = self._accounts
        yield counter("sickbay_cases_opened", "Cases opened.", ["kind", "fault", "pool"], a.opened)
        yield counter("sickbay_case_ends", "Cases ended.", ["kind", "fault", "pool", "end"], a.ends)
        yield histogram("sickbay_mttr_seconds", "Time to return and its parts.", ["part", "pool"], a.mttr)
        yield counter("sickbay_disruptive_cases", "Ended cases that took a node out.", ["pool"], a.disruptive)
        yield counter("sickbay_false_disruptions", "Of those, with no fault found.", ["pool"], a.false_disruptions)
        yield counter("sickbay_resolved_cases", "Cases resolved.", ["pool"], a.resolved)
        yield counter("sickbay_relapses", "Resolved cases whose fault came back.", ["pool"], a.relapses)
        yield counter("sickbay_actions", "Asks of the platform, by answer.", ["verb", "outcome"], a.actions)
        yield counter("sickbay_refusals", "Times a case began to wait, by reason.", ["reason", "pool"], a.refusals)

    def _jobs_so_far(self) -> Iterator[Metric]:
        book = self._accounts.jobs
        yield counter("sickbay_recovery_phases", "Phases entered by recoveries.", ["phase"], book.entered)
        yield counter("sickbay_interruptions", "Jobs stopped against their will.", ["blame"], book.interruptions)
        yield counter("sickbay_restarts", "Jobs that made steps again after a restart.", ["blame"], book.restarts)
        yield counter("sickbay_lost_steps", "Training steps that had to be made again.", [], book.lost_steps)
        yield counter("sickbay_capacity_wait_seconds", "Time jobs waited for good nodes.", [], book.capacity_wait_s)
        yield counter("sickbay_job_node_seconds", "Node-seconds of running jobs.", [], book.node_s)
        yield counter("sickbay_jobs_ended", "Jobs whose account is closed.", ["measured"], book.ended)
        yield counter("sickbay_ended_jobs_wall_gpu_seconds", "W of ended jobs, by GPUs.", [], book.ended_wall_s)
        yield counter("sickbay_ended_jobs_productive_gpu_seconds", "R of ended jobs, by GPUs.", [],
                       book.ended_productive_s)  # fmt: skip
        yield counter("sickbay_user_code_attempts", "Attempts of ended jobs that are excluded.", [], book.excluded)

    # -- what is

    def _nodes(self, controller: Controller) -> Iterator[Metric]:
        view = controller.view
        cases = view.cases.copy()
        count: Counter[tuple[str, str]] = Counter()
        for node in list(view.nodes.values()):
            stored = cases.get(node.name)
            count[(node.pool, _state(node, stored.value if stored else None))] += 1
        pools = sorted({pool for pool, _ in count})[:MOST_POOLS]
        rows = [((pool, state), float(count[(pool, state)])) for pool in pools for state in STATES]
        yield gauge("sickbay_nodes", "Nodes by pool and state.", ["pool", "state"], rows)
        mute = (view.nodes.get(name) for name in view.silent.copy())
        silent = Counter(node.pool for node in mute if node is not None)
        rows_ = [((pool,), float(silent[pool])) for pool in pools]
        yield gauge("sickbay_agents_silent", "Nodes whose agent we no longer hear.", ["pool"], rows_)
        oldest: dict[str, float] = {}
        for pool, since in list(self._accounts.gated.values()):
            oldest[pool] = max(oldest.get(pool, 0.0), self._now() - since)
        gates = [((pool,), oldest.get(pool, 0.0)) for pool in pools]
        yield gauge("sickbay_gate_oldest_seconds", "Age of the oldest newcomer gate.", ["pool"], gates)

    def _cases(self, controller: Controller) -> Iterator[Metric]:
        now = self._now()
        cases = [stored.value for stored in list(controller.view.cases.values())]
        count = Counter((kind_of(c), c.phase.value, fault_of(c), c.pool) for c in cases)
        yield gauge("sickbay_cases", "Open cases.", ["kind", "phase", "fault", "pool"], floats(count))
        oldest: dict[tuple[str, ...], float] = {}
        for case in (c for c in cases if c.timeline):
            key = (case.phase.value, case.pool)
            oldest[key] = max(oldest.get(key, 0.0), now - case.timeline[-1][1])
        yield gauge("sickbay_case_oldest_seconds", "Longest stay in a phase.", ["phase", "pool"], oldest.items())
        waiting = Counter((reason, c.pool) for c in cases if (reason := reason_of(c)))
        yield gauge("sickbay_cases_waiting", "Cases that wait, by reason.", ["reason", "pool"], floats(waiting))
        yield from self._censored(cases, now)

    def _censored(self, cases: list[Case], now: float) -> Iterator[Metric]:
        """Without an end yet: shown beside the mean, never dropped from it."""
        count: Counter[tuple[str, ...]] = Counter()
        ages: dict[tuple[str, ...], float] = {}
        awaited = [("successor", waiting.case) for waiting in list(self._accounts.awaited.values())]
        still = [("escalated" if c.phase is Phase.ESCALATED else "open", c) for c in cases if _is_counted(c)]
        for why, case in (*still, *awaited):
            count[(why, case.pool)] += 1
            ages[(why, case.pool)] = ages.get((why, case.pool), 0.0) + now - spans.begin(case)
        yield gauge("sickbay_censored_cases", "Disruptive cases without an end.", ["why", "pool"], floats(count))
        yield gauge("sickbay_censored_seconds", "Sum of their ages.", ["why", "pool"], ages.items())

    def _limits(self, controller: Controller) -> Iterator[Metric]:
        ledger, sizes, settings = controller.records.ledger, controller.view.counts(), self._settings
        members = controller.view.members.copy()
        used, allowed = [], []
        for scope in ["fleet", *sorted(s for s in members if s.startswith("pool:"))[:MOST_POOLS]]:
            pool = scope.removeprefix("pool:") if scope != "fleet" else ""
            policy = settings.policy_for(pool) if pool else settings.policy
            out = len(admit.out_of_service(scope, ledger, sizes))
            used.append(((scope, "max_out"), float(out)))
            limit = policy.max_out if pool else policy.max_out_fleet
            allowed.append(((scope, "max_out"), float(admit.room(limit, members.get(scope, 0)))))
            if pool:
                treated = {s.node for s in ledger.seats if s.kind == admit.TREAT and s.pool == pool}
                used.append(((scope, "at_once"), float(len(treated))))
                allowed.append(((scope, "at_once"), float(admit.room(policy.at_once, members[scope]))))
        yield gauge("sickbay_limit_used", "Nodes out, or treated, now.", ["scope", "limit"], used)
        yield gauge("sickbay_limit_allowed", "At most so many.", ["scope", "limit"], allowed)
        yield one("sickbay_breaker_open", "1 while the breaker keeps us from disrupting more.", bool(ledger.breaker))
        pauses = Counter(p.partition(":")[0] for p in controller.view.active_pauses(self._now()))
        scopes = [((scope,), float(pauses[scope])) for scope in ("fleet", "pool", "node")]
        yield gauge("sickbay_pauses", "Pauses in force.", ["scope"], scopes)

    def _recoveries(self, controller: Controller) -> Iterator[Metric]:
        now, live = self._now(), [p for p in RecoveryPhase if p not in _OVER]
        found = [stored.value for stored in list(controller.view.recoveries.values())]
        count = Counter(r.phase for r in found)
        yield gauge("sickbay_recoveries", "Jobs we look after, by phase.", ["phase"],
                     [((p.value,), float(count[p])) for p in live])  # fmt: skip
        oldest = {p: max((now - _entered(r, now) for r in found if r.phase is p), default=0.0) for p in live}
        yield gauge("sickbay_recovery_oldest_seconds", "Longest stay in a phase.", ["phase"],
                     [((p.value,), oldest[p]) for p in live])  # fmt: skip

    def _jobs(self) -> Iterator[Metric]:
        accounts = list(self._accounts.jobs.open.values())
        shown = [a for a in largest(accounts, MOST_JOBS) if a.measured]
        live = [(("true",), float(sum(a.measured for a in accounts))),
                  (("false",), float(sum(not a.measured for a in accounts)))]  # fmt: skip
        yield gauge("sickbay_jobs", "Live jobs, by whether their steps are known.", ["measured"], live)
        totals = [((a.job,), a.total) for a in shown]
        label, weights = ["training_job"], [((a.job,), float(a.gpus)) for a in shown]
        yield gauge("sickbay_job_productive_seconds", "R.", label, [(job, t.productive) for job, t in totals])
        yield gauge("sickbay_job_queued_seconds", "Q.", label, [(job, t.queued) for job, t in totals])
        yield gauge("sickbay_job_wall_seconds", "W = Q + R + U.", label, [(job, t.wall) for job, t in totals])
        yield gauge("sickbay_job_gpus", "GPUs of its nodes.", label, weights)


_OVER = frozenset({RecoveryPhase.COMPLETED, RecoveryPhase.FAILED, RecoveryPhase.STOPPED, RecoveryPhase.GONE})


def _state(node: Node, case: Case | None) -> str:
    """One of STATES, the gravest that is true."""
    if case is not None and case.phase not in UNTOUCHED and not case.newcomer:
        return "escalated" if case.phase is Phase.ESCALATED else "in_care"
    if not node.ready:
        return "not_ready"
    if node.gate:
        return "gate"
    if node.cordoned:
        return "cordoned"
    return "watched" if case is not None else "ok"


def _is_counted(case: Case) -> bool:
    return spans.is_disruptive(case) and not case.newcomer and not case.factor


def _entered(recovery: Recovery, now: float) -> float:
    return recovery.journal[-1].at if recovery.journal else now


def open_pages(figures: Figures, vitals: Vitals, listen: str, more: More = lambda path: None) -> Pages:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(figures)
    pages: dict[str, Page] = {"/metrics": lambda: (200, generate_latest(registry)), **vitals.pages()}
    return Pages(listen, pages, "controller.listen", more)
