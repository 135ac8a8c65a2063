"""The console's Prometheus metrics.

Source: docs/observability.md, "Console".
"""

from typing import Final

from federator.runtime.process.exposition import table

CONSOLE: Final = table(
    "federator_console",
    """
counter crowd
  turned_away viewers_refused Pages that found no place.
  asked questions Questions of pages that were taken.
  refused questions_refused Questions of pages beyond the bound.
counter observer
  asked asks_sent Questions to agents on behalf of pages.
  unanswered asks_unanswered Questions to agents that were not answered in time.
  orders orders Drains and undrains that operators ordered.
counter .
  malformed words_malformed Guides and answers that are none.
  words_refused words_refused Guides and answers that no agent's key has signed.
counter observer.connections
  misled connections_misled Connections behind which somebody else was.
counter observer.picture
  left_out records_left_out Brokers and links for which there was no room.
counter operators
  refused sign_ins_refused Attempts to sign in that were refused.
counter dashboard
  asked history_asks Questions to the dashboard of analytics.
  failed history_asks_failed Of these, those without a sound answer.
gauge .
  ready ready 1 when some broker can be read.
  brokers brokers Brokers that are known.
  brokers_down brokers_down Of these, those that are down or whose agent is silent.
  links links Links that are known.
  links_down links_down Of these, those that are down.
  snapshot_age snapshot_age_seconds Since any agent last answered.
gauge crowd
  pages viewers Pages that are kept current.
""",
)
