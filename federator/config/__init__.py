"""The daemon's settings: the only package that reads the environment or a configuration file.

Precedence: environment, then the TOML file, then the defaults. ``load`` either returns settings
that can be used as they are or raises one ``ConfigError`` that says what to mend, and where.
"""

from federator.config.brokers import Address, BrokerAddress, BrokerSettings, NeighbourSettings
from federator.config.collector import CollectorSettings
from federator.config.datagrams import UdpSettings
from federator.config.gateway import (
    AttachmentSettings,
    ClientSettings,
    FailoverSettings,
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
    CustodySettings,
    DataSettings,
    DiscoverySettings,
    LinkSettings,
    MeshSettings,
    RetainedSettings,
    RoutingSettings,
    ShareSettings,
)
from federator.config.settings import Settings
from federator.config.topics import LoopSettings, RenameSettings, RulesSettings

__all__ = [
    "Address",
    "AgentFailoverSettings",
    "AttachmentSettings",
    "BrokerAddress",
    "BrokerSettings",
    "ClientSettings",
    "CollectorSettings",
    "CustodySettings",
    "DataSettings",
    "DiscoverySettings",
    "FailoverSettings",
    "GatewayBrokerSettings",
    "GatewaySettings",
    "HttpSettings",
    "LinkSettings",
    "ListenerSettings",
    "LogSettings",
    "LoopSettings",
    "MeshSettings",
    "MetricsSettings",
    "NeighbourSettings",
    "RenameSettings",
    "RetainedSettings",
    "RoutingSettings",
    "RulesSettings",
    "ServiceManager",
    "Settings",
    "ShareSettings",
    "UdpSettings",
    "UpstreamSettings",
    "load",
    "load_collector",
    "load_gateway",
    "service_manager",
]
