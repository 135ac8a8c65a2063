"""Work on tables, large or small, with Spark: the distribution ``mqtt-federator-analytics``."""
