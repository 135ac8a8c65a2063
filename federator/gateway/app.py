"""The gateway as a process: its HTTP answers, and the signals that end it."""

import asyncio
import contextlib
import resource
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import islice
from typing import Final

import structlog

from federator.config.certificates import expiries_s
from federator.config.gateway import GatewaySettings
from federator.gateway.gateway import Gateway
from federator.gateway.metrics import GATEWAY
from federator.runtime.process import service_manager
from federator.runtime.process.exposition import Family, families
from federator.runtime.process.http import AgentView
from federator.runtime.process.reloading import Reloader, Source, reload_requested
from federator.runtime.process.serving import http_page, run_to_end, stop_requested, with_tasks

LEAVE_S: Final = 5.0
"""How long publications may wait for their acknowledgement before clients are disconnected."""

LISTED_MAX: Final = 1_000
"""Clients in one answer; totals are given beside them."""

Answer = dict[str, object]

_log = structlog.get_logger()


class GatewayView(AgentView):
    """The HTTP answers of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.http_refused: Callable[[], int] = lambda: 0
        self._gateway = gateway
        settings = gateway.settings
        files = [listener.cert_file for listener in settings.listeners]
        files += [broker.cert_file for broker in settings.brokers]
        self._certificates = expiries_s(files)

    def ready(self) -> tuple[bool, str]:
        """Whether clients can be attached, and the reason if not."""
        gateway = self._gateway
        if len(gateway.listeners) < len(gateway.settings.listeners):
            return False, "its listeners are not open yet"
        if any(broker.up for broker in gateway.brokers.values()):
            return True, "ready"
        errors = [f"{b.id}: {b.link.last_error}" for b in gateway.brokers.values()]
        return False, f"no broker: {'; '.join(errors)[:200]}"

    def status(self) -> Answer:
        """The whole state of the gateway."""
        gateway = self._gateway
        ready, reason = self.ready()
        guide = gateway.guides.newest
        here = Counter(a.broker.id for a in gateway.every if a.broker is not None)
        return {
            "name": gateway.settings.name,
            "epoch": gateway.epoch,
            "ready": ready,
            "ready_reason": reason,
            "clients": len(gateway.clients),
            "connecting": len(gateway.connecting),
            "unfinished": len(gateway.antechamber),
            "connecting_bytes": gateway.antechamber.bytes,
            "away": sum(not a.session.attached for a in gateway.clients.values()),
            "unsafe": sum(gateway.journal.unsafe(id) for id in gateway.brokers),
            "http_refused": self.http_refused(),
            "certificates": self._certificates,
            "states": Counter(a.session.state.value for a in gateway.every),
            "controller": guide.controller if guide is not None else None,
            "brokers": [
                {
                    "id": broker.id,
                    "up": broker.up,
                    "state": gateway.guides.state(broker.id),
                    "clients": here[broker.id],
                    "substitutes": gateway.guides.substitutes(broker.id),
                    "round_trip_ms": round(broker.round_trip_s * 1000, 2) if broker.up else None,
                    "unsafe": gateway.journal.unsafe(broker.id),
                    "error": broker.link.last_error,
                }
                for broker in gateway.brokers.values()
            ],
            "journal": {"publications": len(gateway.journal), "bytes": gateway.journal.bytes},
            "counters": asdict(gateway.counters),
        }

    def routes(self) -> Iterable[Answer]:
        """One entry per client that a broker accepted, of at most ``LISTED_MAX``."""
        return (
            {
                "client": client.client_id,
                "broker": client.broker.id if client.broker is not None else None,
                "state": client.session.state.value,
                "version": client.session.version,
                "persistent": client.session.persistent,
                "moves": client.moves,
                "subscribes": len(client.session.subscriptions.granted),
                "publishes": len(client.session.up.topics),
            }
            for client in islice(self._gateway.clients.values(), LISTED_MAX)
        )

    def controller(self) -> Answer:
        """The id of the controller; the agents know the rest."""
        guide = self._gateway.guides.newest
        return {"enabled": False, "controller": guide.controller if guide is not None else None}

    def metrics(self) -> Iterable[Family]:
        return families(GATEWAY, self.status())


def serve(settings: GatewaySettings, source: Source[GatewaySettings]) -> None:
    """Run the gateway until SIGTERM or SIGINT; ``source`` is read again at SIGHUP.

    Raises:
        ConfigError: A port is not available.
    """
    run_to_end(run(settings, source))


async def run(settings: GatewaySettings, source: Source[GatewaySettings]) -> None:
    """Run the gateway as ``serve`` does, on the running loop."""
    _allow_many_connections()
    stop = stop_requested(settings.notices())
    reloader = Reloader(settings, source, reload_requested())
    await with_tasks(lambda tasks: _be_gateway(Gateway(settings, tasks), reloader, stop))
    _log.info("gateway.stopped", name=settings.name)


async def _be_gateway(
    gateway: Gateway, reloader: Reloader[GatewaySettings], stop: asyncio.Event
) -> None:
    settings = gateway.settings
    view = GatewayView(gateway)
    async with http_page(view, settings.http) as port:
        await gateway.start()
        _log.info("gateway.started", name=settings.name, epoch=gateway.epoch, http_port=port)
        links = [broker.link for broker in gateway.brokers.values()]
        async with (
            service_manager.told(view.ready, lambda: links) as reloading,
            reloader.following(reloading),
        ):
            await stop.wait()
        await gateway.leave(patience_s=LEAVE_S)


def _allow_many_connections() -> None:
    """Raise the limit of open sockets as far as allowed: each client needs two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
