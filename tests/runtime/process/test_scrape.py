"""Our text of metrics beside that of Prometheus' own client library."""

import time

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector, core, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from federator.runtime.process.exposition import Definition, Distribution, families, table
from federator.runtime.process.scrape import CONTENT_TYPE, OS_PROCESS, process_metrics, text

ROWS = (
    *table("gauge", ("level", "level", 'How "high" it is, as a \\ path\nin lines.')),
    *table("counter", ("seen", "seen", "What was seen."), labels=("kind", "at")),
    Definition("delays", "federator_delay_seconds", "histogram", "How long it took."),
)
VALUES = {
    "level": 0.1,
    "seen": {("a", 'say "b"'): 12_345_678, ("a", "back\\slash\nline"): 2, ("é", ""): 0},
    "delays": Distribution((0.001, 0.25, 1e9), (1, 0, 3, 4), 12.5),
}


def by_library(rows, values):
    """The same text, made by ``prometheus_client``."""

    class Told:
        def collect(self):
            level, seen, delays = rows
            yield core.GaugeMetricFamily(level.name, level.help, value=values["level"])
            family = core.CounterMetricFamily(seen.name, seen.help, labels=seen.labels)
            for labels in sorted(values["seen"]):
                family.add_metric(labels, values["seen"][labels])
            yield family
            told, so_far, buckets = values["delays"], 0, []
            for bound, count in zip([*told.bounds, "+Inf"], told.counts, strict=True):
                so_far += count
                buckets.append((str(bound), so_far))
            yield core.HistogramMetricFamily(
                delays.name, delays.help, buckets=buckets, sum_value=told.sum
            )

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Told())
    return generate_latest(registry).decode()


def read(exposition):
    return [
        (family.name, family.type, family.documentation, sorted(map(str, family.samples)))
        for family in text_string_to_metric_families(exposition)
    ]


def test_a_reader_finds_what_the_library_would_tell():
    ours = text(families(ROWS, VALUES)).decode()

    assert read(ours) == read(by_library(ROWS, VALUES))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 1e300, 2**63, 0, -1.5])
def test_every_number_is_read_as_it_was(value):
    ((family,),) = [
        list(text_string_to_metric_families(text(families(ROWS[:1], {"level": value})).decode()))
    ]

    assert family.samples[0].value == value


def test_the_process_tells_what_the_library_would():
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)

    theirs = {family.name: family for family in registry.collect()}
    ours = {
        family.name: family
        for family in text_string_to_metric_families(text(process_metrics()).decode())
    }

    described = {(f.name, f.type, f.documentation) for f in theirs.values()}
    assert {(f.name, f.type, f.documentation) for f in ours.values()} == described
    assert len(ours) == len(OS_PROCESS) == 6
    for name, family in theirs.items():
        wanted = family.samples[0].value
        assert ours[name].samples[0].value == pytest.approx(wanted, rel=0.2, abs=2), name
    assert ours["process_start_time_seconds"].samples[0].value <= time.time()


def test_it_says_that_it_is_text_of_prometheus():
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")
