"""What an agent does for its role: at a hub, at a leaf that chooses hubs, while a broker moves."""
