"""The text that Prometheus scrapes, made by its own client library.

The library stores no numbers here: it gets ours at each scrape. With its imports it takes 4 MB, so
a process that is never scraped should not import this module.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, core, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from federator.runtime.process.exposition import Definition, Distribution, Family, Value

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


class _Samples(Collector):
    """The metrics that were read for this scrape."""

    def __init__(self, metrics: Iterable[Family]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[core.Metric]:
        return (_family(row, value) for row, value in self._metrics)


def text(metrics: Iterable[Family]) -> bytes:
    """The text of ``metrics``, and of what the kernel accounts to this process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(metrics))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def _family(row: Definition, value: Value) -> core.Metric:
    if isinstance(value, Distribution):
        bounds = [*map(repr, value.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(value.counts), strict=True))
        return core.HistogramMetricFamily(row.name, row.help, buckets=buckets, sum_value=value.sum)
    make = core.CounterMetricFamily if row.kind == "counter" else core.GaugeMetricFamily
    if not isinstance(value, Mapping):
        return make(row.name, row.help, value=value)
    family = make(row.name, row.help, labels=row.labels)
    for labels in sorted(value):
        family.add_metric(labels, value[labels])
    return family
