"""Publishes our load on our own broker while a plan holds; see ``messages.steering``.

Source: docs/observability.md, "How full links are".
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from federator.config.settings import Settings
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.messages import json_codec
from federator.protocol.messages.steering import (
    LOAD_EVERY_MS,
    STEERING_VERSION,
    Load,
    MeshLoad,
    Plan,
)
from federator.protocol.messages.topics import load_topic
from federator.protocol.steering.edge_follower import EdgeFollower, KeptMeter
from federator.protocol.steering.flow_meter import FlowMeter
from federator.protocol.types import Epoch
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.process.clocks import beat, both_clocks, monotonic_ms, wall_clock_ms
from federator.runtime.steering.link_loads import LinkLoads
from federator.runtime.trust.words import SignedWords


@dataclass(kw_only=True, eq=False, repr=False)
class LoadTeller:
    """Publishes our load every ``LOAD_EVERY_MS`` while a plan holds."""

    settings: Settings
    epoch: Callable[[], Epoch]
    link: MqttLink  # the control connection to our broker
    words: SignedWords
    forwarder: Forwarder
    flows: FlowMeter
    loads: LinkLoads
    holding: Callable[[], Plan | None]  # the current plan
    wants: Callable[[str], bool]  # whether our clients want a filter in its mesh
    edge: EdgeFollower
    in_doubt: Callable[[], bool]  # whether our clients' interest is uncertain
    kept: KeptMeter

    def part(self) -> Part:
        return Part(tasks={"loads": self.run})

    async def run(self) -> None:
        while True:
            await beat(LOAD_EVERY_MS / 1_000)
            self.kept.look(monotonic_ms())
            self.edge.doubt(self.in_doubt(), both_clocks())
            self.tell()

    def tell(self) -> None:
        """Publish our load now, if a plan holds."""
        plan = self.holding()
        if plan is not None and self.link.connected:
            topic = load_topic(self.settings.federation)
            self.link.publish(topic, self._payload(topic, self._load(plan)))

    def _load(self, plan: Plan) -> Load:
        """Our load while ``plan`` holds."""
        flows, rest = self.flows.told(self.forwarder, steerable=True)
        return Load(
            version=STEERING_VERSION,
            federation=self.settings.federation,
            broker=self.settings.broker_id,
            epoch=self.epoch(),
            at_ms=wall_clock_ms(),
            links=self.loads.report(),
            flows=flows,
            rest=rest,
            steerer=plan.steerer,
            number=plan.number,
            name=self.settings.broker.name,
            placed=self.settings.mesh.core == "placed",
            meshes=None if plan.meshes is None else self._meshes(plan.meshes),
            kept=self.edge.report(*self.kept.rates()),
        )

    def _meshes(self, asked: Iterable[str]) -> MeshLoad:
        return MeshLoad(
            self.settings.broker.priority,
            self.flows.told_of_meshes(self.forwarder),
            tuple(filter(self.wants, asked)),
        )

    def _payload(self, topic: str, load: Load) -> bytes:
        """``load``, signed if we have keys, with as many flows as fit into a message."""
        while True:
            payload = self.words.sign(topic, json_codec.encode(load))
            if len(payload) <= json_codec.MESSAGE_BYTES_MAX or not (load.flows or load.meshes):
                return payload
            if load.meshes is not None:
                load = replace(load, meshes=None)
                continue
            kept = len(load.flows) // 2
            rest = load.rest + sum(flow.rate for flow in load.flows[kept:])
            load = replace(load, flows=load.flows[:kept], rest=rest)
