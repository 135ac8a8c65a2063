"""The data plane of one agent: publications of our clients out, frames of other agents in.

There is one path through it. All PUBLISHes of one socket read come **in** at once. ``Forwarder``
and the duplicate logs **decide**. Custody writes its **log**. ``Outgoing`` (to neighbours) and
``Delivery`` (to our broker) are the way **out**.

Publications of our clients are sorted into batches by route, and each batch becomes one frame; runs
of packets with one route stay whole. A frame from another agent is delivered once, written to our
broker as it came, and forwarded under a new label. The aim is to copy and read bytes rarely.

Source: docs/protocol.md section 8.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from federator.errors import DecodeError
from federator.protocol.custody.custodian import Custodian
from federator.protocol.custody.doubts import Notary
from federator.protocol.custody.ports import CustodyContext, Disk
from federator.protocol.data import ports
from federator.protocol.data.delivery import Delivery
from federator.protocol.data.features import Features, Limits
from federator.protocol.data.intake import Batch, Intake, RouteBatches
from federator.protocol.data.moves import Moves, Waiting
from federator.protocol.data.outgoing import Leaving, Outgoing
from federator.protocol.data.senders import Senders
from federator.protocol.duplicates import DuplicateLog
from federator.protocol.effects import FilterRoute, Notice
from federator.protocol.forwarding.bundles import is_bundle, unpack_bundle
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.forwarding.forwarding import (
    KEPT,
    MATCHES_PER_TURN_MAX,
    Forwarder,
    FrameRoute,
    Sends,
    TopicRoute,
    joined,
)
from federator.protocol.forwarding.frames import (
    CUSTODY_FLAG,
    REPAIR_FLAG,
    TAIL_FLAG,
    TRACE_FLAG,
    WORD_FLAG,
    Frame,
    OwnFrames,
    unpack,
)
from federator.protocol.forwarding.keeping import KeepPolicy
from federator.protocol.forwarding.parts import Assembly, is_part, sender_of
from federator.protocol.forwarding.publications import DUP_BIT, QOS_BITS, Inbound
from federator.protocol.messages.destinations import names_tree
from federator.protocol.messages.group_records import inbox_key, is_inbox_key
from federator.protocol.messages.steering import Tree
from federator.protocol.messages.topics import DOCTORS_WORD, data_topic, delivered_topic
from federator.protocol.policy.rules import LinkRules
from federator.protocol.steering.flow_meter import FlowMeter
from federator.protocol.telemetry.frame_events import Came
from federator.protocol.timers import earliest
from federator.protocol.types import BrokerId, Epoch, Millis, Now


class DataPlane:
    """The data plane of one agent.

    What the control plane may call is the table in docs/ARCHITECTURE.md, "The data plane's
    interface".

    Args:
        forwarder: Where publications go. The control plane reads it.
        outlet: Sends requests of custody, and notices to the operator.
    """

    def __init__(
        self,
        *,
        self_id: BrokerId,
        epoch: Epoch,
        federation: str,
        forwarder: Forwarder,
        disk: Disk,
        outlet: CustodyContext,
        now: Now,
        limits: Limits | None = None,
        features: Features | None = None,
    ) -> None:
        features, limits = features or Features(), limits or Limits()
        self._shared: ports.Shared | None = None
        self._plans: ports.Plans | None = None
        self._traces: ports.Traces | None = None
        self.forwarder, self.trees = forwarder, forwarder.trees
        self.counters = DataCounters()
        self.data_topic = data_topic(federation)
        self._self_id, self._members = self_id, features.members
        self._inbox_key = inbox_key(self_id)
        self._own = OwnFrames(self_id, epoch, limits.hop_limit)
        self._outlet = outlet
        self._seals, self._frame_events = features.seals, features.frame_events
        self._duplicates, self._policies = features.duplicates, features.policies
        self._custody_duplicates = DuplicateLog()  # frames under custody have other numbers
        # Tails use the numbers of QoS 0, which any agent may forge.
        proves = features.seals is not None and features.seals.proves
        self._tail_duplicates = DuplicateLog() if proves else self._duplicates
        self._frame_bytes_max = limits.frame_bytes_max
        self.senders = Senders()
        self._assembly = Assembly()  # of parts
        self._unfinished = False  # custody has something to publish at the end of this read
        self._leaving: list[Leaving] | None = None  # frames of the bundle being handled
        self.outgoing = Outgoing(self_id, self.data_topic, self.counters, features)
        self.delivery = Delivery(
            self_id, delivered_topic(federation, self_id), self.counters, outlet.tell, features
        )
        self.custody = Custodian(
            disk=disk,
            outlet=outlet,
            forwarder=forwarder,
            outgoing=self.outgoing,
            delivery=self.delivery,
            own=self._own,
            notary=Notary(federation, features.seals),
            held_bytes_max=limits.held_bytes_max,
            now=now,
        )
        self.moves = Moves(self_id, self._mark, self._release, counters=self.counters)
        self.intake = Intake(
            custody=self.custody,
            own=self._own,
            outgoing=self.outgoing,
            moves=self.moves,
            counters=self.counters,
            limits=limits,
            features=features,
        )

    @property
    def origins(self) -> int:
        """How many origins the duplicate window remembers."""
        return len(self._duplicates)

    def next_deadline_ms(self) -> Millis | None:
        return earliest(self.intake.due_ms, self.custody.due_ms, self.moves.due_ms)

    def on_time(self, now: Now) -> None:
        """Do what is due."""
        self.intake.on_time(now)
        if self.moves.due_ms is not None:
            self.moves.on_time(now)
        custody_ms = self.custody.due_ms
        if custody_ms is not None and custody_ms <= now.ms:
            self.custody.on_time(now)

    # Calls of the control plane

    def reach(
        self,
        neighbour: BrokerId,
        link: ports.FrameLink | None,
        now: Now,
        topic: str | None = None,
        *,
        takes_bundles: bool = False,
    ) -> None:
        """Send what is for ``neighbour`` over ``link``; ``None``: it cannot be reached.

        ``topic`` replaces the usual topic for frames. ``takes_bundles``: its agent supports
        bundles, which older agents do not.
        """
        self.outgoing.by_broker.reach(neighbour, link, topic, takes_bundles=takes_bundles)
        self.forwarder.reach(neighbour, link is not None)
        self._assembly.forget(neighbour)
        if link is not None:
            self.custody.on_way_opened(now)
        self.senders.hear(neighbour, link is not None, now)

    def set_route(
        self, filter: str, route: FilterRoute | None, now: Now, *, lost: bool = False
    ) -> None:
        """Replace the route of ``filter``; ``None`` forgets it. ``lost``: see ``SetRoute``."""
        self.intake.on_route_changes(now)
        if self.moves:
            self.moves.end(now, filter)
        if not filter.startswith("$"):  # those with ``$`` are between agents: see protocol.sharing
            route = self.custody.on_route(filter, route, now, lost=lost)
        for other in self.forwarder.set_route(filter, route):
            details: dict[str, int | str] = {"filter": filter, "other": other}
            self._outlet.tell(Notice("filter.key_collision", "warning", details))

    def set_destinations(self, next_hops: Mapping[BrokerId, BrokerId | None], now: Now) -> None:
        """Frames for these brokers go through these next hops; see ``SetDestination``."""
        self.intake.on_route_changes(now)
        for broker, next_hop in next_hops.items():
            self.forwarder.set_destination(broker, next_hop)
        reached = {broker for broker, next_hop in next_hops.items() if next_hop is not None}
        if self.moves:
            self.moves.forget(next_hops.keys() - reached)
        self.custody.on_destinations_moved(reached, now)

    def follow_trees(self, trees: Sequence[Tree], now: Now) -> None:
        """Send flows by exactly ``trees``. Raises ``ValueError``: one is no tree, or does not pass
        us.

        Flows of ours that move wait until their former routes are empty, if markers can be
        followed.
        """
        if self.trees.follows(trees, self._self_id):
            return
        flows = {tree.filters for tree in trees if tree.origin == self._self_id} | self.trees.own
        moving = sorted(flows) if self._traces is not None else ()
        former = {flow: self.forwarder.route_flow(flow) for flow in moving}
        self.trees.replace(trees, self._self_id)
        self.trees_changed(now)
        for flow, way in former.items():
            if way[1] and way != self.forwarder.route_flow(flow):
                self.moves.begin(flow, TopicRoute(*way), now.ms)

    def trees_changed(self, now: Now) -> None:
        """Handle a change of planned trees, or of whether they hold."""
        self.intake.on_route_changes(now)
        self.forwarder.trees_changed()

    def keep(self, policy: KeepPolicy | None, now: Now) -> None:
        """Keep here what only collectors want, as ``policy`` says; ``None``: nothing."""
        self.intake.on_route_changes(now)
        self.forwarder.keep(policy)

    def renew_epoch(self, epoch: Epoch) -> None:
        """Number the frames of a new epoch from 1."""
        self._own.renew(epoch)

    def share(self, filters: frozenset[str], shared: ports.Shared | None) -> None:
        """Shared groups of other brokers want exactly ``filters`` of our clients' publications.

        ``shared`` gets these, and the frames for our inbox; ``None``: there are no such groups.
        """
        self._shared = shared
        self.forwarder.share(filters)
        self.custody.share(filters)

    def report_traces(self, traces: ports.Traces) -> None:
        """Pass traces that arrive to ``traces``, which says where they go."""
        self._traces = traces

    def report_torn(self, plans: ports.Plans) -> None:
        """Report frames by trees that do not hold here to ``plans``."""
        self._plans = plans

    def widen(self, widened: bool, doubted: frozenset[str]) -> None:
        """Deliver everything while ``widened``; ``doubted``: filters that may be wanted here."""
        self.forwarder.widen(widened, doubted)

    def follow_link_rules(self, rules: Mapping[BrokerId, LinkRules], others: LinkRules) -> bool:
        """Use these rules of links from now on; return whether they changed."""
        return self._policies.follow(rules, others)

    def follow_rules(self) -> None:
        """The rules of our broker's edge changed."""
        self.forwarder.follow_rules()

    @property
    def flows(self) -> FlowMeter:
        return self.intake.flows

    def tend(self, now: Now) -> bool:
        """Bound what custody keeps, every second or so; return whether routes changed."""
        self.intake.flows.on_time(now.ms)
        ended = self.custody.tend(now)
        for filter, route in ended:
            self.forwarder.set_route(filter, route)
        return bool(ended)

    def share_of_turn(self, publishes: Sequence[Inbound]) -> int:
        """How many of ``publishes`` one turn of the loop takes, at least one.

        A client may have subscribed thousands of filters that all match one publication.
        """
        if len(publishes) * len(self.forwarder) <= MATCHES_PER_TURN_MAX:
            return len(publishes)
        return self.forwarder.share_of_turn([packet.topic for packet, _, _ in publishes])

    def on_publishes(self, chunk: memoryview, publishes: Sequence[Inbound], now: Now) -> None:
        """Take all PUBLISHes of one socket read of the data connection; ``chunk`` is not kept."""
        if (stamps := self.delivery.stamps) is not None:
            chunk, publishes = stamps.leaving(chunk, publishes, but=self.data_topic, now_ms=now.ms)
        if self._shared is not None:
            self._shared.on_publishes(chunk, publishes)
        data_topic = self.data_topic
        # An idle agent gets reads of one, with nothing gathered: no batch is made for these.
        if len(publishes) == 1 and not self.intake.filled:
            packet, start, end = publishes[0]
            if packet.topic == data_topic:
                self._on_frame(packet.payload, now)
                self._finish_custody(now)
                return
            if packet.packet_id is None:
                route = self.forwarder.route_topic(packet.topic)
                if route is None:
                    self.counters.unwanted += 1
                elif route is KEPT:
                    self._count_kept(packet.topic, end - start)
                else:
                    self.intake.send_alone(route, chunk[start:end], now)
                return
        frame_bytes_max, keeping = self._frame_bytes_max, self.forwarder.keeping.policy
        seen: dict[str, RouteBatches | None] = {}
        batch: Batch | None = None
        run_start = run_end = run_count = first_bytes = 0
        for packet, start, end in publishes:
            topic = packet.topic
            if topic in seen:
                batches = seen[topic]
            elif topic == data_topic:
                self._on_frame(packet.payload, now)
                continue
            else:
                route = self.forwarder.route_topic(topic)
                batches = None if route is None or route is KEPT else self.intake.of(route)
                seen[topic] = batches
            if batches is None:
                if not keeping or not self._count_kept(topic, end - start):
                    self.counters.unwanted += 1
                continue
            first_byte = chunk[start]
            into = batches.acknowledged if first_byte & QOS_BITS else batches.plain
            # Sent again after a broken connection. It may have broken after we wrote the log, but
            # before the broker got the acknowledgement: then only the acknowledgement is missing.
            if first_byte & DUP_BIT and self.intake.is_logged(packet):
                self.counters.redelivered += 1
                continue
            # Adjacent packets with one route are one piece: bytes are sliced once for all.
            if into is batch and start == run_end and end - run_start <= frame_bytes_max:
                run_end = end
                run_count += 1
                first_bytes |= first_byte
                continue
            if batch is not None:
                self.intake.add(batch, chunk[run_start:run_end], run_count, first_bytes, now)
            batch, run_start, run_end, run_count, first_bytes = into, start, end, 1, first_byte
        if batch is not None:
            self.intake.add(batch, chunk[run_start:run_end], run_count, first_bytes, now)
            self.intake.end_read(now)
        # Frames of one read share one entry in the journal, and one marker after them.
        self._finish_custody(now)

    def _count_kept(self, topic: str, size: int) -> bool:
        """Count a publication of ``size`` bytes if it is kept here; return whether it is."""
        kept = self.forwarder.keeps(topic)
        self.counters.kept += kept
        self.counters.kept_bytes += size * kept
        return kept

    def on_frames(self, frames: Sequence[bytes], now: Now, by: BrokerId | None = None) -> None:
        """Take frames that came past our broker; ``by``: the sender, if other seals identify it."""
        for frame in frames:
            self._on_frame(frame, now, by)
        self._finish_custody(now)

    def _finish_custody(self, now: Now) -> None:
        if self._unfinished:
            self._unfinished = False
            self.custody.finish(now)

    def send_to(
        self, broker: BrokerId, parts: Sequence[bytes | memoryview], size: int, count: int, now: Now
    ) -> bool:
        """Send a frame to the inbox of ``broker``, once; return whether there is a route.

        Its body ``parts`` has ``size`` bytes and ``count`` publications.
        """
        keys = inbox_key(broker)
        route = self.forwarder.route_frame(keys, 1, sender=self._self_id, origin=self._self_id)
        if not route.sends:
            return False
        frame = self._own.plain(keys, count, now.us)
        return self.outgoing.send(frame, 0, route.sends, parts, size, now_ms=now.ms) > 0

    def trace(self, route: TopicRoute, sends: Sends, body: bytes, now: Now) -> int:
        """Send a trace to ``sends``, next hops of ``route``; return its number."""
        epoch, seq = self._own.number()
        frame = self._own.label(TRACE_FLAG, epoch, seq, now.us, 0, route.keys, body)
        self.outgoing.send(frame, 0, sends, (body,), len(body), now_ms=now.ms)
        return seq

    def _mark(self, former: TopicRoute, topic: str, body: bytes, now: Now) -> tuple[int, Sends]:
        """Send a marker to reachable next hops that may get ``topic``; return its number and
        them.
        """
        rules_of, reaches = self._policies.rules_of, self.outgoing.reaches
        hops = (send for send in former.sends if reaches(send[0]))
        sends = tuple(send for send in hops if rules_of(send[0]).allows_export(topic))
        return self.trace(former, sends, body, now) if sends else 0, sends

    def _release(self, flow: tuple[str, ...], waited: Sequence[Waiting], now: Now) -> None:
        self.intake.send_waited(TopicRoute(*self.forwarder.route_flow(flow)), waited, now)

    # Frames of other agents

    def _on_frame(self, payload: bytes, now: Now, sealed_by: BrokerId | None = None) -> None:
        """Deliver a frame, forward it, or drop it."""
        counters = self.counters
        counters.frames_in += 1
        counters.frame_bytes_in += len(payload)
        if payload == DOCTORS_WORD:
            counters.frames_of_strangers += 1
            return
        if self._seals is not None and sealed_by is None:
            opened = self._seals.open_frame(payload)
            if opened is None:
                return
            sealed_by, payload = opened
        try:
            if is_part(payload):
                whole = self._put_together(payload, now, sealed_by)
                if whole is None:
                    return
                payload = whole
            if is_bundle(payload):
                self._on_bundle(payload, now, sealed_by)
                return
            frame = unpack(payload)
        except DecodeError as error:
            self.delivery.malformed(error, now.ms)
            return
        self._on_label(frame, len(payload), now, sealed_by)

    def _put_together(self, part: bytes, now: Now, sealed_by: BrokerId | None) -> bytes | None:
        """The whole that ``part`` completes, if a neighbour cut it; ``DecodeError``: it is no
        part.
        """
        sender = sender_of(part)
        strange = sealed_by is not None and sender != sealed_by
        if strange or self.senders.until_ms.get(sender, 0.0) <= now.ms:
            self.counters.frames_of_strangers += 1
            return None
        return self._assembly.put(part)

    def _on_bundle(self, payload: bytes, now: Now, sealed_by: BrokerId | None) -> None:
        """Take the frames of a bundle; forward them together."""
        try:
            frames = unpack_bundle(payload)
        except DecodeError as error:
            self.delivery.malformed(error, now.ms)
            return
        self.counters.frames_in += len(frames) - 1
        self._unfinished = True  # what is published here waits for the end of the read
        leaving: list[Leaving] = []
        self._leaving = leaving
        for frame, size in frames:
            self._on_label(frame, size, now, sealed_by)
        self._leaving = None
        if leaving:
            self.counters.relayed += self.outgoing.send_bundle(leaving, now_ms=now.ms)

    def _on_label(self, frame: Frame, size: int, now: Now, sealed_by: BrokerId | None) -> None:
        """Take a frame, if its sender is a neighbour and custody accepts it."""
        counters = self.counters
        strange = sealed_by is not None and frame.sender != sealed_by
        strange |= self._members is not None and frame.origin not in self._members
        if strange or self.senders.until_ms.get(frame.sender, 0.0) <= now.ms:
            counters.frames_of_strangers += 1
            return
        judge = self.custody.judge
        if judge is not None and frame.flags & ~TRACE_FLAG and frame.origin != self._self_id:
            # A word is checked by the agent that it is for.
            if not frame.flags & WORD_FLAG and not judge.believes(frame, size, now):
                return
            self._take_frame(frame, size, now)
            leaving, self._leaving = self._leaving, None  # frames that waited are forwarded alone
            for waited, size in judge.released():
                self._take_frame(waited, size, now)
            self._leaving = leaving
        else:
            self._take_frame(frame, size, now)

    def _take_frame(self, frame: Frame, size: int, now: Now) -> None:
        """Deliver an accepted frame, forward it, or drop it."""
        counters = self.counters
        if self._policies.active:
            let_in = self._policies.incoming(frame)
            if let_in is None:
                return
            frame = let_in
        if frame.flags & TRACE_FLAG:
            self._on_trace(frame, now)
            return
        origin = frame.origin
        is_ours = origin == self._self_id
        paused = origin in self.custody.paused
        # No agent has frames of ours that we lack; but destinations of a tree may be behind us.
        if paused or (is_ours and (frame.flags & REPAIR_FLAG or not names_tree(frame.keys))):
            self._suppress(frame, size, now)
            return
        if frame.flags & REPAIR_FLAG:
            # It returns along the path of the request, and may be an intended copy.
            self._note_came(frame, size, now)
            self.custody.on_repair(frame, now)
            self._unfinished = True
            return
        seen = self._custody_duplicates if frame.flags & CUSTODY_FLAG else self._duplicates
        if frame.flags & TAIL_FLAG:
            seen = self._tail_duplicates
        first, new = seen.admit(
            origin, frame.epoch, frame.seq, k=frame.k, mask=frame.mask, sender=frame.sender
        )
        if not first and not new:
            self._suppress(frame, size, now)
            return
        if is_ours:
            new = self.trees.beyond(frame.keys, new)
        self._note_came(frame, size, now)
        route = self._route(frame, new, seen, now)
        counters.unknown_filters += route.unknown
        if route.in_doubt and first:
            counters.in_doubt += frame.publications
            counters.in_doubt_bytes += size
        if is_ours:
            pass
        elif frame.flags:
            self._keep_or_deliver(frame, route, now, first=first)
        elif is_inbox_key(frame.keys):
            if first and self._shared is not None and frame.keys == self._inbox_key:
                self._shared.on_parcel(frame)
        elif first and route.deliver:
            self._deliver(frame, now)
        if not route.sends:
            return
        if frame.hops + 1 >= frame.hop_limit:
            counters.hop_limit_exceeded += 1
            return
        hops, sends, parts, length = frame.hops + 1, route.sends, (frame.body,), len(frame.body)
        if self._leaving is not None:
            self._leaving.append(Leaving(frame, hops, sends, parts, length))
        else:
            counters.relayed += self.outgoing.send(frame, hops, sends, parts, length, now_ms=now.ms)

    def _deliver(self, frame: Frame, now: Now) -> None:
        """Publish a frame that is not under custody, after what came before it in this read."""
        if self._unfinished:
            self.custody.destination.queue(frame)
        else:
            self.delivery.deliver(frame, now)

    def _route(self, frame: Frame, mask: int, seen: DuplicateLog, now: Now) -> FrameRoute:
        """The route of ``frame`` for the filters in ``mask``, which no copy took on before."""
        sender = frame.sender
        route = self.forwarder.route_frame(frame.keys, mask, sender=sender, origin=frame.origin)
        if not route.rescue:
            return route
        if self._plans is not None:
            self._plans.on_torn(route.torn, sender, now)
        # No copy was responsible for these, unless another broker sent one already. The route may
        # lead back to the sender: the sender took on the tree only.
        _, left = seen.admit(
            frame.origin, frame.epoch, frame.seq, k=frame.k, mask=route.rescue, sender=sender
        )
        around = self.forwarder.route_frame(
            frame.keys, left, sender=self._self_id, origin=frame.origin
        )
        return replace(route, sends=joined(route.sends, around.sends, frame.k))

    def _on_trace(self, frame: Frame, now: Now) -> None:
        """Forward a frame without publications as if it were one of QoS 0 with some."""
        if self._traces is None or frame.origin == self._self_id:
            return
        first, new = self._duplicates.admit(
            frame.origin, frame.epoch, frame.seq, k=frame.k, mask=frame.mask, sender=frame.sender
        )
        route = None
        if first or new:
            route = self._route(frame, new, self._duplicates, now)
        try:
            sends, body = self._traces.on_frame(frame, route)
        except DecodeError as error:
            self.delivery.malformed(error, now.ms)
            return
        if frame.hops + 1 < frame.hop_limit:
            self.outgoing.send(frame, frame.hops + 1, sends, (body,), len(body), now_ms=now.ms)

    def _keep_or_deliver(self, frame: Frame, route: FrameRoute, now: Now, *, first: bool) -> None:
        """Pass the frame to custody; publish it here if custody does not."""
        self.custody.on_frame(frame, route.local, now, first=first)
        self._unfinished = True
        # Custody delivers the frames on its chains in order. Without known subscribers here, a
        # frame is delivered only while interest is widened, and is on no chain.
        counted = route.local or frame.flags & TAIL_FLAG
        if first and route.deliver and not counted:
            self._deliver(frame, now)

    def _note_came(self, frame: Frame, size: int, now: Now, *, repeated: bool = False) -> None:
        """Record that ``frame`` arrived, in a payload of ``size`` bytes."""
        if self._frame_events is not None:
            came = Came(
                frame.sender, frame.publications, size, repeated, frame.flags, frame.origin,
                frame.epoch, frame.seq, frame.hops + 1, frame.origin_time_us, now.us,
            )  # fmt: skip
            self._frame_events.add(came)

    def _suppress(self, frame: Frame, size: int, now: Now) -> None:
        self._note_came(frame, size, now, repeated=True)
        self.counters.duplicate_frames += 1
        self.counters.duplicates_suppressed += frame.publications
