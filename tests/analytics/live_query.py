"""A program that streams the lines of a federation into a table until it is killed.

python -m tests.analytics.live_query BROKER FOLDER [OPTION VALUE]...
"""

import sys

from federator_analytics.session import spark_session
from federator_analytics.sources.federator_mqtt import register


def main(broker, folder, *told):
    options = dict(zip(told[::2], told[1::2], strict=True))
    with spark_session("live", master="local[2]", driver_memory="1g") as spark:
        register(spark)
        reader = spark.readStream.format("federator_mqtt").option("broker", broker)
        lines = reader.options(**options).load()
        writer = lines.writeStream.format("parquet").trigger(processingTime="200 milliseconds")
        writer.option("checkpointLocation", f"{folder}/checkpoint").start(
            f"{folder}/table"
        ).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
