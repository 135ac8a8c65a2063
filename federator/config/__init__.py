"""The daemon's settings: the only package that reads the environment or a configuration file.

Precedence: environment, then the TOML file, then the defaults. ``load`` either returns settings
that can be used as they are or raises one ``ConfigError`` that says what to mend, and where.
"""

from federator.config.address import Address
from federator.config.brokers import BrokerSettings, Connection, NeighbourSettings
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
from federator.config.reading import load, load_collector, load_gateway
from federator.config.sections import (
    AgentFailoverSettings,
    CustodySettings,
    DataSettings,
    DiscoverySettings,
    HttpSettings,
    LinkSettings,
    LogSettings,
    MeshSettings,
    MetricsSettings,
    RetainedSettings,
    RoutingSettings,
    ShareSettings,
)
from federator.config.service import ServiceManager, service_manager
from federator.config.settings import Settings
from federator.config.topics import LoopSettings, RenameSettings, RulesSettings

__all__ = [
    "Address",
    "AgentFailoverSettings",
    "AttachmentSettings",
    "BrokerSettings",
    "ClientSettings",
    "CollectorSettings",
    "Connection",
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
