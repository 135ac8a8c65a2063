"""The daemon's settings: the only package that reads the environment or a configuration file.

Precedence: environment, then the TOML file, then the defaults. ``load`` either returns settings
that can be used as they are or raises one ``ConfigError`` that says what to mend, and where.
"""

from federator.config.brokers import Address, BrokerAddress, BrokerSettings
from federator.config.collector import CollectorSettings
from federator.config.gateway import (
    GatewayBrokerSettings,
    GatewaySettings,
    ListenerSettings,
    UpstreamSettings,
)
from federator.config.observability import HttpSettings, LogSettings, MetricsSettings
from federator.config.reading import (
    ServiceManager,
    load,
    load_collector,
    load_gateway,
    service_manager,
)
from federator.config.sections import (
    AgentFailoverSettings,
    DiscoverySettings,
    RetainedSettings,
    ShareSettings,
)
from federator.config.settings import Settings
from federator.config.topics import LoopSettings

__all__ = [
    "Address",
    "AgentFailoverSettings",
    "BrokerAddress",
    "BrokerSettings",
    "CollectorSettings",
    "DiscoverySettings",
    "GatewayBrokerSettings",
    "GatewaySettings",
    "HttpSettings",
    "ListenerSettings",
    "LogSettings",
    "LoopSettings",
    "MetricsSettings",
    "RetainedSettings",
    "ServiceManager",
    "Settings",
    "ShareSettings",
    "UpstreamSettings",
    "load",
    "load_collector",
    "load_gateway",
    "service_manager",
]
