"""What agents tell about themselves, as records: one struct per table, one JSON object per line.

A federation's metrics stream is a handful of tables that grow by a batch a second. Writers (the
agent, the grid) and the daemon's own readers share these types; analytics reads the same lines by
the same names from docs/metrics.md, which a test keeps equal to the types.

Source: docs/metrics.md; design section 7.
"""

from federator.protocol.metric_records.envelope import VERSION, Record, Stamp, encode, stamp
from federator.protocol.metric_records.happenings import Clients, Events, Hops
from federator.protocol.metric_records.lines import TABLES, AnyRecord, decode
from federator.protocol.metric_records.replay import (
    Again,
    Ask,
    Head,
    again_topic,
    ask_topic,
    decode_again,
    decode_ask,
    decode_head,
    head_topic,
    table_topic,
)
from federator.protocol.metric_records.sketch import Sketch, bucket_of, quantile, sketch, value_of
from federator.protocol.metric_records.state import Agents, Announcements, Control, Links
from federator.protocol.metric_records.traffic import Arrived, Deliveries, Offered

__all__ = [
    "TABLES",
    "VERSION",
    "Again",
    "Agents",
    "Announcements",
    "AnyRecord",
    "Arrived",
    "Ask",
    "Clients",
    "Control",
    "Deliveries",
    "Events",
    "Head",
    "Hops",
    "Links",
    "Offered",
    "Record",
    "Sketch",
    "Stamp",
    "again_topic",
    "ask_topic",
    "bucket_of",
    "decode",
    "decode_again",
    "decode_ask",
    "decode_head",
    "encode",
    "head_topic",
    "quantile",
    "sketch",
    "stamp",
    "table_topic",
    "value_of",
]
