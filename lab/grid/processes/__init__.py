"""Programs that an experiment starts: brokers, agents, gateways and the relays between them."""
