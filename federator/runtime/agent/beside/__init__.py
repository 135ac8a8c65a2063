"""What is beside the agent of a broker, in its process: where leaves hang, or its role changes."""
