"""Metric families for controller/metrics.py: rows of labels and values in, what prometheus_client prints out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from sickbay.controller.tallies import Histogram, Tally

Rows = Iterable[tuple[tuple[str, ...], float]]
L = TypeVar("L", bound=tuple[str, ...])


def floats(count: Mapping[L, int]) -> Rows:
    return [(labels, float(n)) for labels, n in sorted(count.items())]


def family(
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily], name: str, text: str, labels: list[str], rows: Rows
) -> Metric:
    family = kind(name, text, labels=labels)
    for values, value in rows:
        family.add_metric(list(values), value)
    return family


def counts(name: str, text: str, labels: list[str], rows: Rows) -> Metric:
    return family(CounterMetricFamily, name, text, labels, rows)


def gauge(name: str, text: str, labels: list[str], rows: Rows) -> Metric:
    return family(GaugeMetricFamily, name, text, labels, rows)


def one(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value)


def counter(name: str, text: str, labels: list[str], tally: Tally) -> Metric:
    """One without labels is there from the start, as 0: a rate needs a first value."""
    rows = tally.items()
    return family(CounterMetricFamily, name, text, labels, rows if labels or rows else [((), 0.0)])


def histogram(name: str, text: str, labels: list[str], histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    bounds = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
    for values, spread in histogram.items():
        buckets = [(bound, float(n)) for bound, n in zip(bounds, spread.counts, strict=True)]
        family.add_metric(list(values), buckets, spread.sum)
    return family
