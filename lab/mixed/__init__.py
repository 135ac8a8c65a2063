"""Mixed traffic on a grid where subscribers, agents and gateways come and go."""
