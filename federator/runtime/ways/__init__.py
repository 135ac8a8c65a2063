"""Ways to a broker beyond a plain connection: by a proxy, in WebSockets."""
