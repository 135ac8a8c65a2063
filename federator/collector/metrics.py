"""What Prometheus sees of a collector. Source: docs/observability.md."""

from typing import Final

from federator.runtime.exposition import Definition, table

_PREFIX: Final = "federator_collector_"

COUNTERS: Final = table(
    "counter",
    ("asked", "asks_sent", "Questions to agents."),
    ("unanswered", "asks_unanswered", "Questions not answered to their end in time."),
    ("stray", "answers_stray", "Answers that nobody asked for, or that came twice."),
    (
        "malformed",
        "words_malformed",
        "Guides, heads and answers that are none, or not of who was asked.",
    ),
    ("no_room", "answers_dropped", "Answers dropped because the memory was full."),
    ("landed_files", "landed_files", "Files landed."),
    ("landed_bytes", "landed_bytes", "Bytes landed."),
    ("lost", "batches_lost", "Batches that can never be had, landed as gaps."),
    (
        "skipped",
        "batches_skipped",
        "Numbers of no batch: agents skip some when their machine started anew.",
    ),
    ("misled", "connections_misled", "Connections behind which somebody else was than expected."),
    ("land_failures", "land_failures", "Times that a file could not be written."),
    prefix=_PREFIX,
)
"""By the names that the counters have in ``/status``."""

COLLECTOR: Final[tuple[Definition, ...]] = (
    *COUNTERS,
    *table(
        "counter",
        ("http_refused", "http_connections_refused", "HTTP connections beyond the limit."),
        prefix=_PREFIX,
    ),
    *table(
        "gauge",
        ("ready", "ready", "1 when some broker can be read."),
        ("files", "files", "Landed files."),
        ("bytes", "files_bytes", "Bytes of landed files."),
        ("bytes_in_memory", "memory_bytes", "Bytes not yet landed."),
        prefix=_PREFIX,
    ),
    *table(
        "gauge",
        (
            "lag",
            "lag_batches",
            "Batches (seconds) that the spool has and that are not landed.",
        ),
        prefix=_PREFIX,
        labels=("broker", "spool"),
    ),
    *table(
        "gauge",
        ("up", "broker_up", "1 when the broker can be asked."),
        prefix=_PREFIX,
        labels=("url",),
    ),
)
