"""``spark.readStream.format("federator_mqtt")``: the metrics stream, live from the brokers.

    from federator_analytics.sources.federator_mqtt import register

    register(spark)
    lines = (
        spark.readStream.format("federator_mqtt")
        .option("broker", "mqtt://hub:1883")
        .option("federation", "fed")
        .load()
    )

A row is one record line as its agent wrote it, with where it came from; ``spark.read`` gives what
the spools hold now. Offsets are (broker, spool, batch), and what lies between two of them is asked
from the agents by the executors, so a restart from a checkpoint reads each micro-batch again as it
was.

Source: docs/metrics.md, "Replay"; docs/analytics.md, "The live source".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from federator.protocol.telemetry.records import Events, encode
from federator_analytics.errors import DataLossError, UnavailableError
from federator_analytics.schemas.fields import struct
from federator_analytics.sources.live.heads import Heads
from federator_analytics.sources.live.link import Options, Place, read_options
from federator_analytics.sources.live.replay import (
    Held,
    Lost,
    Offsets,
    Replay,
    advance,
    between,
    loss_text,
    past,
)

LIVE_LINES = struct("line string", "broker long", "spool string", "batch long")
"""One record line, who wrote it, in which log, in which batch of it."""

_ARROW = to_arrow_schema(LIVE_LINES)


def register(spark: SparkSession) -> None:
    """Make the format known to this session."""
    spark.dataSource.register(FederatorMqtt)


@dataclass
class _Range(InputPartition):
    """A task: these batches, from this agent."""

    wanted: Held
    place: Place


class FederatorMqtt(DataSource):
    """The format; Spark makes one for each ``load``."""

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(...)``."""
        return "federator_mqtt"

    def schema(self) -> StructType:
        """Always ``LIVE_LINES``."""
        return LIVE_LINES

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of ``spark.read``."""
        return _Once(read_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of ``spark.readStream``."""
        return _Stream(read_options(self.options))


class _Once(DataSourceReader):
    """What all spools hold when the query is planned."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One per spool that holds something."""
        heads = Heads(self._options)
        heads.open()
        try:
            missing = heads.missing()
            if missing and self._options.fail_on_loss:
                where = " and ".join(url or f"broker {id_}" for id_, url in sorted(missing.items()))
                hint = "set failOnDataLoss to false to go on without it"
                raise UnavailableError(f"no agent is heard at {where}: {hint}")
            return _ranges(heads, between({}, advance({}, heads.alive(), batches_max=None)))
        finally:
            heads.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, _Range):  # Spark's stand-in for no partitions at all
            return iter(())
        return _read(partition, self._options)


class _Stream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches. Listens while the query runs; pickled for the executors before it does."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._heads: Heads | None = None
        self._target: list[Held] | None = None

    def initialOffset(self) -> Offsets:
        """Nothing read of anything; or, with ``latest``, everything that is held now."""
        return past(self._listening().alive()) if self._options.latest else {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Batches of each spool; Spark has no limit of that name, and a batch is like a file."""
        return ReadMaxFiles(self._options.batches_max)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """The offset that the agents heard just now have come to, within ``limit``."""
        alive = self._listening().alive()
        if self._target is not None:
            targets = {(held.broker, held.spool): held.last for held in self._target}
            alive = [
                Held(held.broker, held.spool, held.first, targets[held.broker, held.spool])
                for held in alive
                if (held.broker, held.spool) in targets
            ]
        batches_max = None if isinstance(limit, ReadAllAvailable) else self._options.batches_max
        return advance(start, alive, batches_max=batches_max)

    def reportLatestOffset(self) -> Offsets:
        """All that is held, for the query's progress: how far it is behind."""
        return advance({}, self._listening().alive(), batches_max=None)

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to what is held now."""
        self._target = self._listening().alive()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """One per spool with something new."""
        return _ranges(self._listening(), between(start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The lines of one spool, by an executor."""
        return _read(cast(_Range, partition), self._options)

    def commit(self, end: Offsets) -> None:
        """Nothing: spools forget by size and age, not because one of their readers is done."""

    def stop(self) -> None:
        if self._heads is not None:
            self._heads.close()

    def _listening(self) -> Heads:
        if self._heads is None:
            self._heads = Heads(self._options)
            self._heads.open()
        return self._heads


def _ranges(heads: Heads, wanted: list[Held]) -> list[InputPartition]:
    found: list[InputPartition] = []
    for held in wanted:
        place = heads.place_of(held.broker)
        if place is None:
            text = f"the checkpoint wants batches of broker {held.broker}, whose address is unknown"
            raise UnavailableError(f"{text}: name it in option broker")
        found.append(_Range(held, place))
    return found


def _read(part: _Range, options: Options) -> Iterator[pa.RecordBatch]:
    """Raises DataLossError at a hole, unless the options say to go on."""
    replay = Replay(
        part.place,
        options.federation,
        part.wanted,
        answer_s=options.answer_s,
        keys=options.keys,
    )
    for piece in replay.read():
        if not isinstance(piece, Lost):
            yield _rows(part.wanted, piece.lines)
        elif options.fail_on_loss:
            raise DataLossError(loss_text(part.wanted, piece))
        else:
            yield _rows(part.wanted, [(piece.first, loss_record(part.wanted, piece, options))])


def _rows(wanted: Held, lines: list[tuple[int, bytes]]) -> pa.RecordBatch:
    columns = [
        pa.array([line.decode(errors="replace") for _, line in lines], pa.string()),
        pa.array([wanted.broker] * len(lines), pa.int64()),
        pa.array([wanted.spool] * len(lines), pa.string()),
        pa.array([batch for batch, _ in lines], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def loss_record(wanted: Held, lost: Lost, options: Options) -> bytes:
    """The loss as a record of table ``events``, in place of the first batch that is lost.

    Its kind is not the agent's own ``spool_dropped``, which counts what the spool dropped; this
    counts what this query missed of it.
    """
    told = Events(
        federation=options.federation,
        broker=wanted.broker,
        epoch=0,
        spool=wanted.spool,
        batch=lost.first,
        row=0,
        at_us=lost.at_us,
        kind="batches_missed",
        detail=f"batches {lost.first} to {lost.last} were dropped before they were read",
        value=lost.last - lost.first + 1,
    )
    return encode(told)
