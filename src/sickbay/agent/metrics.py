"""/metrics in Prometheus' form and /healthz: the agent seen from outside. Names and meanings: docs/metrics.md.

Nothing is counted here: a scrape reads what the parts know. /healthz is 200 only while the follower and the collector
make progress; 503 names the one that is stuck. It must never delay a part it reports on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from sickbay import __version__
from sickbay.agent.collector import Collector
from sickbay.agent.follower import Follower
from sickbay.agent.measures import Measures
from sickbay.agent.publishers.lane import Lane
from sickbay.agent.publishers.textfile import STATUSES
from sickbay.agent.pulse import Pulse
from sickbay.agent.station import Station
from sickbay.model import Status
from sickbay.pages import Page, Pages


class Instruments:
    """What a scrape sees. prometheus_client calls `collect`."""

    def __init__(
        self, station: Station, follower: Follower, collector: Collector, lanes: list[Lane],
        measures: Callable[[], Measures] = Measures,
    ) -> None:  # fmt: skip
        self.station, self.follower, self.collector, self.lanes = station, follower, collector, lanes
        self.measures = measures

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("sickbay_agent_info", "Which agent this is.", labels=["version", "node"])
        info.add_metric([__version__, self.station.who.node], 1.0)
        yield info
        yield from self._verdict()
        yield from self._parts()
        yield from self._publishers()
        yield from self._host()

    def _verdict(self) -> Iterator[Metric]:
        status = GaugeMetricFamily(
            "sickbay_node_status", "1 for what the agent says of its node now.", labels=["status"]
        )
        now = self.station.verdict.status
        for word in STATUSES:
            status.add_metric([word], float(word == now))
        yield status
        found = GaugeMetricFamily(
            "sickbay_finding", "Lines or counts behind each latched finding.",
            labels=["check", "code", "device", "severity", "believed"],
        )  # fmt: skip
        for verdict in self.station.chart.verdicts.latched:
            one = verdict.finding
            labels = [one.check, one.code, one.place.device, one.severity.name, str(verdict.believed).lower()]
            found.add_metric(labels, float(one.count))
        yield found
        blind = GaugeMetricFamily("sickbay_check_blind", "1 for a check that could not look.", labels=["check"])
        for answer in self.station.chart.verdicts.answers:
            blind.add_metric([answer.check], float(answer.status is Status.UNKNOWN))
        yield blind

    def _parts(self) -> Iterator[Metric]:
        follower, collector = self.follower, self.collector
        yield CounterMetricFamily("sickbay_kernel_lines", "Kernel lines judged.", follower.lines)
        yield CounterMetricFamily("sickbay_kernel_lost", "Kernel records gone before they were read.", follower.lost)
        yield CounterMetricFamily("sickbay_cycles", "Cycles of the light checks.", collector.cycles)
        yield CounterMetricFamily(
            "sickbay_checks_abandoned", "Checks that hung and were left.", collector.guard.abandoned
        )
        yield GaugeMetricFamily("sickbay_checks_stuck", "Checks that hang now.", len(collector.guard.stuck()))
        yield GaugeMetricFamily(
            "sickbay_settings_bad", "1: the newest edit is wrong.", float(bool(collector.config.trouble))
        )
        yield CounterMetricFamily(
            "sickbay_state_errors", "Writes of the state folder that failed.", self.station.save_errors
        )
        took = GaugeMetricFamily("sickbay_check_seconds", "How long a check took last.", labels=["check"])
        for name, seconds in list(collector.seconds.items()):
            took.add_metric([name], seconds)
        yield took

    def _publishers(self) -> Iterator[Metric]:
        figures = GaugeMetricFamily(
            "sickbay_publisher", "Reports of a publisher: sent, failed, refused, dropped, waiting, spooled, unspooled.",
            labels=["publisher", "what"],
        )  # fmt: skip
        for lane in self.lanes:
            for what, value in lane.figures().items():
                figures.add_metric([lane.publisher.name, what], value)
        yield figures

    def _host(self) -> Iterator[Metric]:
        by_name: dict[str, list[tuple[str, float]]] = {}
        for one in self.measures().all:
            by_name.setdefault(one.name, []).append((one.label, one.value))
        for name, rows in by_name.items():
            label = rows[0][0].partition("=")[0]
            family = GaugeMetricFamily(f"sickbay_host_{name}", "Host metric.", labels=[label] if label else [])
            for which, value in rows:
                family.add_metric([which.partition("=")[2]] if label else [], value)
            yield family


class Server(Pages):
    """Listens until closed. UserError if the address cannot be had."""

    def __init__(self, listen: str, instruments: Instruments, pulse: Pulse) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(instruments)
        pages: dict[str, Page] = {
            "/metrics": lambda: (200, generate_latest(registry)),
            "/healthz": lambda: health(pulse),
        }
        super().__init__(listen, pages, "agent.listen")


def health(pulse: Pulse) -> tuple[int, bytes]:
    late = pulse.late()
    if not late:
        return 200, b"ok\n"
    said = "; ".join(f"{part} has made no progress for {seconds:.0f} s" for part, seconds in sorted(late.items()))
    return 503, said.encode() + b"\n"
