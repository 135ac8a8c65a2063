"""The gateway: an MQTT-aware proxy whose clients outlive their broker."""
