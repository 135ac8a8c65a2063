from tests.analytics.conftest import spark

__all__ = ["spark"]
