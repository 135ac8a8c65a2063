"""State and overhead: the links, the control traffic, and the agent itself, window by window.

Source: docs/metrics.md, "links", "control", "announcements", "agents".
"""

from typing import Literal

from federator.protocol.metric_records.envelope import Flag, Id, Natural, Record, Text

Direction = Literal["in", "out"]


class Links(Record, frozen=True, kw_only=True, tag="links"):
    """One neighbour, over a window.

    Attributes:
        neighbour: Who.
        up: 1 when the link is live at the window's end.
        cost: Of the link, in the units of routes.
        round_trip_us: Measured on hellos; null before the first.
        queue_bytes: Waiting to be sent there at the window's end.
        frames_out: Sent there.
        publications_out: In those: data copies.
        bytes_out: Of those frames.
        frames_in: That came from there.
        publications_in: In those.
        bytes_in: Of those frames.
        duplicates: Frames among them that were here before.
        duplicate_publications: In those.
        dropped: QoS 0 publications that its connection refused: lost.
        deferred: The same under custody: to be asked for again.
    """

    neighbour: Id
    up: Flag
    cost: Natural
    round_trip_us: Natural | None = None
    queue_bytes: Natural = 0
    frames_out: Natural = 0
    publications_out: Natural = 0
    bytes_out: Natural = 0
    frames_in: Natural = 0
    publications_in: Natural = 0
    bytes_in: Natural = 0
    duplicates: Natural = 0
    duplicate_publications: Natural = 0
    dropped: Natural = 0
    deferred: Natural = 0


class Control(Record, frozen=True, kw_only=True, tag="control"):
    """Control messages exchanged with one neighbour.

    Attributes:
        neighbour: With whom; null while the other end is not known yet.
        kind: ``hello``, ``core_ann`` and so on: the last level of the control topic.
        direction: Seen from the reporter.
        messages: How many.
        bytes: Of their payloads.
    """

    neighbour: Id | None
    kind: Text
    direction: Direction
    messages: Natural
    bytes: Natural


class Announcements(Record, frozen=True, kw_only=True, tag="announcements"):
    """Floods that the reporter started as a core.

    Attributes:
        announcements: New sequence numbers that it announced.
        links_known: Links of the federation, as far as the reporter knows; null when it does not.
    """

    announcements: Natural
    links_known: Natural | None = None


class Agents(Record, frozen=True, kw_only=True, tag="agents"):
    """The reporter itself. Counters are of the window, the rest is the state at its end.

    Attributes:
        clients: Connected to its broker; null when not known.
        filters: With a route.
        local_filters: That its clients subscribe to.
        publications_in: Taken from its clients.
        publications_out: Sent in frames as their origin.
        delivered: Handed to its broker.
        no_route: Wanted by others, but with no way there.
        dropped: Refused by connections: lost.
        deferred: The same under custody.
        custody_bytes: Of the log on disk.
        custody_gaps: Numbers that are missing and asked for.
        send_queue_bytes: Of all connections.
        cpu_us: Processor time used.
        rss_bytes: Memory; null where the system does not say.
        loop_lag_us: The longest the event loop came late.
        broker_clients: ``$SYS``: connected clients; null when not told.
        broker_messages_in: ``$SYS``: received by the broker since it started.
        broker_messages_out: ``$SYS``: sent by the broker since it started.
        broker_round_trip_us: Of a publication of ours to ourselves; null when none came back.
        strategy: Its routing.
        redundancy: Parents per core.
        link_count: Links that it has with neighbours, up or not.
    """

    clients: Natural | None = None
    filters: Natural
    local_filters: Natural
    publications_in: Natural
    publications_out: Natural
    delivered: Natural
    no_route: Natural
    dropped: Natural
    deferred: Natural
    custody_bytes: Natural
    custody_gaps: Natural
    send_queue_bytes: Natural
    cpu_us: Natural
    rss_bytes: Natural | None = None
    loop_lag_us: Natural
    broker_clients: Natural | None = None
    broker_messages_in: Natural | None = None
    broker_messages_out: Natural | None = None
    broker_round_trip_us: Natural | None = None
    strategy: Text
    redundancy: Natural
    link_count: Natural
