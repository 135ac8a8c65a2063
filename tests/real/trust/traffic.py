"""A stream through a federation that somebody attacks."""

import contextlib

from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import gets_through


@contextlib.asynccontextmanager
async def traffic(here, there, *others, wanted="a/#", topic="a/b", qos=1, login=(), **options):
    """From ``here`` to ``there``, where it gets through already; beside it run ``others``."""
    subscriber = Subscriber(there.port, wanted, client_id="sub", qos=qos, login=login)
    publisher = Publisher(here.port, topic, client_id="pub", qos=qos, login=login, **options)
    async with running(subscriber, publisher, *others):
        await gets_through(publisher, subscriber)
        yield publisher, subscriber
