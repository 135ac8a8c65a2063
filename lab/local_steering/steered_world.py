"""The simulator's world with agents that steer by prices, and fill their plans in themselves."""

from collections.abc import Sequence
from typing import Any, Final

from federator.errors import DecodeError
from federator.protocol.messages.steering import STEERING_VERSION, FlowLoad, LinkLoad, Plan, Tree
from federator.protocol.types import BrokerId
from lab.local_steering.agent import LocalSteering
from lab.local_steering.chooser import Move
from lab.local_steering.words import LinkPrices, decode, encode
from lab.sim.data import FEDERATION
from lab.sim.network import INBOX_MAX, Agent
from lab.sim.world import World

KIND: Final = "prices"
STEERER: Final = "local"
VALID_MS: Final = 60_000
RENEW_MS: Final = 10_000


class SteeredWorld(World):
    """A world whose agents hear words; what they measure is told by whoever knows it."""

    steers = True

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401  # as ``World`` has them
        self.locals: dict[BrokerId, LocalSteering] = {}
        self._plans: dict[BrokerId, tuple[Agent, int, tuple[Tree, ...]]] = {}  # who, when, what
        self._numbers = 0
        super().__init__(*args, **options)

    def arrive(self, id: BrokerId, kind: str, payload: bytes) -> None:
        """A message is published on a broker."""
        agent = self.agents.get(id)
        if kind != KIND:
            super().arrive(id, kind, payload)
        elif agent is not None and agent.subscribed and len(agent.inbox) < INBOX_MAX:
            self.run(agent, self.on_word, agent, payload)

    def on_word(self, agent: Agent, payload: bytes) -> None:
        """An agent hears a word."""
        try:
            word = decode(payload)
        except DecodeError:
            self.fired["undecodable"] += 1
            return
        local = self.local(agent)
        is_news, answer = local.on_word(word, self.now_of(agent).ms)
        if is_news:
            self._flood(agent, word)
            self._flood(agent, answer)
            self.follow(agent, local.trees())

    def sample(self, agent: Agent, links: Sequence[LinkLoad], flows: Sequence[FlowLoad]) -> None:
        """An agent takes what it measured."""
        local = self.local(agent)
        self._flood(agent, local.sample(links, flows, self.now_of(agent).ms))
        self.follow(agent, local.trees())

    def turn(self, agent: Agent) -> list[Move]:
        """It is an agent's turn to choose; what it moved."""
        local = self.local(agent)
        word, moves = local.turn(self.now_of(agent).ms)
        self._flood(agent, word)
        self.follow(agent, local.trees())
        return moves

    def local(self, agent: Agent) -> LocalSteering:
        """What steers in the agent's process, which forgets all when that restarts."""
        local, epoch = self.locals.get(agent.id), agent.node.links.epoch
        if local is None or local.epoch != epoch:
            local = self.locals[agent.id] = LocalSteering(agent.id, epoch)
        return local

    def follow(self, agent: Agent, trees: Sequence[Tree]) -> Plan | None:
        """Fill the plan of an agent in, if it is another one or has to be renewed."""
        known = self._plans.get(agent.id)
        same = known is not None and known[0] is agent and known[2] == tuple(trees)
        if known is not None and same and self.now_ms - known[1] < RENEW_MS:
            return None
        self._numbers += 1
        plan = Plan(
            STEERING_VERSION,
            FEDERATION,
            agent.id,
            STEERER,
            since_ms=0,
            number=self._numbers,
            made_ms=self.now_of(agent).us // 1_000,
            valid_ms=VALID_MS,
            trees=tuple(trees),
        )
        self._plans[agent.id] = agent, self.now_ms, plan.trees
        self.run(agent, self.data_paths[agent.id].on_plan, plan)
        return plan

    def _flood(self, agent: Agent, word: LinkPrices | None) -> None:
        if word is None:
            return
        payload = encode(word)
        for neighbour in sorted(agent.reach):
            connection = agent.connection_to(neighbour)
            if connection is not None and neighbour != word.broker:
                self.wires.transmit(connection, KIND, payload)
