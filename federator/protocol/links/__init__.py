"""Which brokers are our neighbours, which links are up, and what crossing a link costs."""
