"""``federator init --from-bridges``: what a federation has for the bridges of a Mosquitto."""
