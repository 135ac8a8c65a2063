"""Ways to a broker that are more than a plain connection: by a proxy, in WebSockets."""
