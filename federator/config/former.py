"""A broker that changes its role, from leaf to member or back: what it was, beside what it is.

Source: docs/hubs.md, "Moving".
"""

from federator.config.sections import (
    AgentFailoverSettings,
    MetricsSettings,
    ShareSettings,
)
from federator.config.settings import Settings
from federator.config.topics import LoopSettings


def hinders(settings: Settings, former: Settings) -> tuple[str, str] | None:
    """Why the broker of ``settings`` cannot have been ``former``: what is wrong, and a remedy."""
    if former.former is not None:
        return "it names a former one itself", "end one move before the next"
    if former.broker.id != settings.broker.id:
        ids = f"it is of broker {former.broker.id}, and this is {settings.broker.id}"
        return ids, "a broker keeps its id"
    if former.broker.address != settings.broker.address:
        return f"it is of {former.broker.url}", f"name the broker there, {settings.broker.url}"
    if former.federation == settings.federation:
        told = f"it is of the federation {former.federation}, too"
        return told, "remove former, a restart is enough"
    if former.state_dir == settings.state_dir:
        return f"its state_dir is {former.state_dir}, too", "give this one a folder of its own"
    if settings.leaves or former.leaves:
        return (
            "there are [[leaves]]",
            "a broker that moves has none: take them afterwards",
        )
    if former.finds_hubs:
        return "it chooses among hubs", "name there the two that federator status says are taken"
    return None


def ending(former: Settings) -> Settings:
    """What the former agent goes by while its successor is there, which does all the rest."""
    retained = former.retained.model_copy(update={"enabled": False})
    return former.model_copy(
        update={
            "share": ShareSettings(scope="broker"),
            "loops": LoopSettings(watch="never"),
            "retained": retained,
            "failover": AgentFailoverSettings(enabled=False),
            "metrics": MetricsSettings(enabled=False),
            "steer": former.steer.model_copy(update={"follow": False}),
            "http": former.http.model_copy(update={"enabled": False}),
        }
    )


def beginning(settings: Settings) -> Settings:
    """What its successor goes by until it is restarted."""
    return settings.model_copy(update={"loops": LoopSettings(watch="never")})
