"""MQTT as a client speaks it: one connection that stays, its session, its packets, its bounds."""
