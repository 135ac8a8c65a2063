"""Makes any graph of unmodified MQTT brokers act as one."""

__version__ = "0.1.0"
