"""The console's Prometheus metrics.

Source: docs/observability.md, "Console".
"""

from typing import Final

from federator.runtime.process.exposition import table

CONSOLE: Final = table(
    "federator_console",
    """
counter .
  viewers_refused viewers_refused Pages that found no place.
  questions questions Questions of pages that were taken.
  questions_refused questions_refused Questions of pages beyond the bound.
  asked asks_sent Questions to agents on behalf of pages.
  unanswered asks_unanswered Questions to agents that were not answered in time.
  malformed words_malformed Guides and answers that are none.
  words_refused words_refused Guides and answers that no agent's key has signed.
  misled connections_misled Connections behind which somebody else was.
  left_out records_left_out Brokers and links for which there was no room.
  sign_ins_refused sign_ins_refused Attempts to sign in that were refused.
  orders orders Drains and undrains that operators ordered.
  history_asked history_asks Questions to the dashboard of analytics.
  history_failed history_asks_failed Of these, those without a sound answer.
gauge .
  ready ready 1 when some broker can be read.
  brokers brokers Brokers that are known.
  brokers_down brokers_down Of these, those that are down or whose agent is silent.
  links links Links that are known.
  links_down links_down Of these, those that are down.
  viewers viewers Pages that are kept current.
  snapshot_age snapshot_age_seconds Since any agent last answered.
""",
)
