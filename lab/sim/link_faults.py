"""What befalls the links of a world: cuts, silences, jams. Causes add up; each ends by itself."""

from collections.abc import Mapping

from federator.protocol.types import BrokerId
from lab.sim.agenda import Agenda
from lab.sim.agents import Agent
from lab.sim.network import Path
from lab.sim.wires import BROKER_PATIENCE_MS, KEEP_ALIVE_MS, Wires


class LinkFaults:
    """Breaks and mends the paths between agents and neighbours' brokers.

    Args:
        agents: Those that run, by id.
        wires: Their connections.
        agenda: The clock.
    """

    def __init__(self, agents: Mapping[BrokerId, Agent], wires: Wires, agenda: Agenda) -> None:
        self._agents = agents
        self._wires = wires
        self._agenda = agenda

    def reset(self, path: Path) -> None:
        """Reset every connection on ``path``."""
        agent = self._agents.get(path.owner)
        if agent is None:
            return
        for connection, _ in list(agent.connections.values()):
            if connection.path is path:
                self._wires.reset(agent, connection)

    def cut(self, path: Path) -> None:
        """Reset the connections and allow no new ones."""
        path.cuts += 1
        self.reset(path)

    def mend(self, path: Path) -> None:
        """End one cause of the cut."""
        path.cuts -= 1

    def silence(self, path: Path) -> None:
        """Let everything vanish, until a keep-alive runs out or the path speaks again."""
        path.silences += 1
        agent = self._agents.get(path.owner)
        if agent is None:
            return
        for connection, dialler in list(agent.connections.values()):
            if connection.path is path and not connection.lost:
                connection.lost = True
                now_ms, wires = self._agenda.now_ms, self._wires
                self._agenda.at(now_ms + KEEP_ALIVE_MS, wires.ended_here, agent, connection)
                self._agenda.at(
                    now_ms + BROKER_PATIENCE_MS, wires.give_up_there, connection, dialler.address
                )

    def unsilence(self, path: Path) -> None:
        """New connections work again; the old ones are answered with a reset."""
        path.silences -= 1
        agent = self._agents.get(path.owner)
        if agent is None or path.silences:
            return
        for connection, _ in list(agent.connections.values()):
            if connection.path is path and connection.lost:
                self._agenda.at(self._agenda.now_ms + 1, self._wires.ended_here, agent, connection)

    def clog(self, path: Path, until_ms: int) -> None:
        """Hold back what is sent until ``until_ms``."""
        path.clogged_until_ms = max(path.clogged_until_ms, until_ms)
