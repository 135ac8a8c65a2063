"""The asyncio side: connections, subscription discovery, the data path, the daemon."""
