"""The live source under Spark: offsets, restarts, bounds and losses, at real brokers and agents."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest
from federator_analytics.sources.federator_mqtt import register
from pyspark.errors import PySparkException

from federator.runtime.telemetry.spool_files import read_lines
from tests.analytics.brokers import brokers
from tests.analytics.spool_peer import SpoolPeer
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import Plain, eventually, gets_through, linked
from tests.real.polling import until
from tests.real.trust.test_roles import REQUIRED
from tests.real.trust.test_signed import Office, keys

QUERY_S = 120
METRICS = "[metrics]\nenabled = true\nflush_ms = 200\nsegment_age_ms = 1000\n"
KILLS = int(os.environ.get("FEDERATOR_TEST_KILLS", "1"))
START_S = 120


@pytest.fixture(scope="module")
def ports(tmp_path_factory):
    with brokers(tmp_path_factory.mktemp("mqtt"), 2) as found:
        yield [broker.port for broker in found]


@pytest.fixture
def peers(ports):
    """Two, of whom the first one's guide tells of both, and of a third who is gone."""
    urls = [f"mqtt://127.0.0.1:{port}" for port in ports]
    with SpoolPeer(ports[0], 1) as one, SpoolPeer(ports[1], 2, spool="b" * 16) as two:
        one.guide([(1, urls[0], "up"), (2, urls[1], "up"), (9, "mqtt://127.0.0.1:9", "gone")])
        yield one, two


@pytest.fixture
def source(spark, ports):
    register(spark)

    def prepared(reader, **options):
        reader = reader.format("federator_mqtt").option("broker", f"mqtt://127.0.0.1:{ports[0]}")
        return reader.options(answerTimeoutMs=20_000, **options)

    return prepared


def run(frame, folder, *, once=True):
    """Read all there is now into a table of Parquet files; the query, ended."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )
    try:
        assert query.awaitTermination(QUERY_S)
    finally:
        query.stop()
    return query


def table(spark, folder):
    rows = spark.read.parquet(str(folder / "table")).collect()
    return sorted((row.broker, row.spool, row.batch, row.line) for row in rows)


def written(*peers):
    return sorted(
        (peer.broker, peer.spool, batch, line)
        for peer in peers
        for batch, lines in peer.batches.items()
        for line in lines
    )


def test_a_batch_read_gives_what_all_spools_hold_found_from_one_broker(spark, peers, source):
    peers[0].write(20)
    peers[1].write(30)

    rows = source(spark.read).load().collect()

    found = sorted((row.broker, row.spool, row.batch, row.line) for row in rows)
    assert found == written(*peers)


def test_a_stream_reads_every_batch_once_over_restarts(spark, peers, source, tmp_path):
    peers[0].write(20)
    run(source(spark.readStream).load(), tmp_path)
    peers[0].write(5)
    peers[1].write(7)
    peers[0].twice = True
    run(source(spark.readStream).load(), tmp_path)
    run(source(spark.readStream).load(), tmp_path)

    assert table(spark, tmp_path) == written(*peers)


def test_a_micro_batch_that_was_not_finished_is_read_again_as_it_was(
    spark, peers, source, tmp_path
):
    peers[0].write(10)
    seen = []

    def keep(frame, number):
        seen.append((number, sorted(row.line for row in frame.collect())))

    def once():
        frame = source(spark.readStream).load()
        writer = frame.writeStream.foreachBatch(keep).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        assert query.awaitTermination(QUERY_S)

    once()
    (tmp_path / "commits" / "0").unlink()  # as a crash leaves it
    (tmp_path / "commits" / ".0.crc").unlink(missing_ok=True)
    peers[0].write(10)
    once()

    first, again, rest = seen
    assert again == first
    assert sorted(first[1] + rest[1]) == sorted(line for *_, line in written(peers[0]))


def test_a_trigger_takes_no_more_batches_than_it_may(spark, peers, source, tmp_path):
    peers[0].write(25)

    query = run(source(spark.readStream, maxBatchesPerTrigger=10).load(), tmp_path)

    taken = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert taken == [20, 20, 10]
    assert table(spark, tmp_path) == written(*peers)


def test_dropped_batches_that_a_checkpoint_promised_end_the_query_with_a_clear_word(
    spark, peers, source, tmp_path
):
    peers[0].write(10)
    run(source(spark.readStream).load(), tmp_path)
    peers[0].write(10)
    peers[0].drop(15)

    with pytest.raises(PySparkException) as error:
        run(source(spark.readStream).load(), tmp_path)

    wanted = "DataLossError: batches 11 to 14 of spool aaaaaaaaaaaaaaaa at broker 1 were dropped"
    assert wanted in str(error.value)
    assert "set failOnDataLoss to false" in str(error.value)


def test_dropped_batches_may_be_passed_over_and_are_told_as_a_record(
    spark, peers, source, tmp_path
):
    peers[0].write(10)
    kept = written(peers[0])
    run(source(spark.readStream).load(), tmp_path)
    peers[0].write(10)
    peers[0].drop(15)

    run(source(spark.readStream, failOnDataLoss="false").load(), tmp_path)

    found = table(spark, tmp_path)
    (told,) = [json.loads(line) for *_, line in found if "batches_missed" in line]
    assert (told["broker"], told["batch"], told["row"], told["value"]) == (1, 11, 0, 4)
    assert [row for row in found if "batches_missed" not in row[3]] == kept + written(peers[0])


def test_a_wrong_option_is_named(spark, peers, source):
    with pytest.raises(PySparkException, match="maxbatchespertrigger is many, 1 to"):
        source(spark.read, maxBatchesPerTrigger="many").load().collect()


def test_a_batch_read_without_a_listed_broker_is_refused_unless_told(spark, peers, source):
    peers[0].write(3)
    peers[0].guide([(7, "mqtt://127.0.0.1:9", "up")])

    with pytest.raises(PySparkException, match=r"no agent is heard at mqtt://127\.0\.0\.1:9"):
        source(spark.read, discoverTimeoutMs=1_500).load().collect()
    told = source(spark.read, discoverTimeoutMs=1_500, failOnDataLoss="false")
    assert told.load().count() == 6


@contextlib.contextmanager
def query(broker, folder, options):
    """A query in processes of its own; at the end they are killed, all at once."""
    command = [sys.executable, "-m", "tests.analytics.live_query", broker, str(folder)]
    command += [text for option in options.items() for text in option]
    with (folder / "query.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def committed(folder):
    """Micro-batches the checkpoint holds for done."""
    return len([path for path in folder.glob("checkpoint/commits/*") if path.name.isdigit()])


def held(agent):
    """(spool, batch) to lines, as the agent's own files say after its end."""
    found = {}
    for file in (agent.state_dir / "metrics").glob("*.jsonl"):
        for _, _, line in read_lines(file.read_bytes()):
            record = json.loads(line)
            found.setdefault((record["spool"], record["batch"]), Counter())[line.decode()[:-1]] += 1
    return found


@pytest.mark.full
async def test_each_batch_is_read_once_though_the_query_is_killed(spark, tmp_path):
    """In a federation where none is answered without a collector's key."""
    office = Office(tmp_path / "office")
    keys("issue", "--dir", office.folder, "--role", "collector", "--name", "spark")
    options = {
        "collectorFile": str(office.folder / "collector-spark.key"),
        "federationFiles": str(office.folder / "federation.pub"),
    }
    more = [f"{office.section(id_)}{REQUIRED}\n{METRICS}" for id_ in (1, 2)]
    async with Plain(tmp_path) as plain:
        brokers = [await plain.broker() for _ in range(2)]
        urls = [broker.url for broker in brokers]
        one = await plain.agent(1, brokers[0], urls[1], security="signed", more=more[0])
        two = await plain.agent(2, brokers[1], urls[0], security="signed", more=more[1])
        await eventually(one, linked(2), "1 has its link")
        far = Subscriber(brokers[1].port, "a/#", client_id="far")
        source = Publisher(brokers[0].port, "a/b", client_id="source", rate_hz=200)
        async with running(far, source):
            await gets_through(source, far)
            for _ in range(KILLS):
                before = committed(tmp_path)
                with query(urls[0], tmp_path, options) as process:
                    await until(
                        lambda b=before, p=process: (
                            p.poll() is not None or committed(tmp_path) >= b + 3
                        ),
                        "three micro-batches",
                        deadline_s=START_S,
                    )
                    assert process.poll() is None, (tmp_path / "query.log").read_text()[-3000:]
            register(spark)
            reader = spark.readStream.format("federator_mqtt").option("broker", urls[0])
            await asyncio.to_thread(run, reader.options(**options).load(), tmp_path)
            await two.stop()
            await one.stop()

    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    found = {}
    for row in rows:
        found.setdefault((row.broker, row.spool, row.batch), Counter())[row.line] += 1
    for broker, agent in enumerate((one, two), 1):
        read = {key[1:]: lines for key, lines in found.items() if key[0] == broker}
        written = {key: lines for key, lines in held(agent).items() if key <= max(read)}
        assert len(read) >= 5
        assert read == written
