"""What our session at the broker may hold, remembered beyond this process.

A broker that is killed comes back with the sessions that it saved last, up to half an hour ago. A
filter that we unsubscribed since then is subscribed again, and where it overlaps another, each
publication comes twice. So whatever was subscribed is listed on disk, and whoever connects next
unsubscribes all of it that is not wanted.

Source: measured on Mosquitto 2.0.11 (``autosave_interval``, ``persistence``).
"""

from collections.abc import Iterable
from typing import Final

import structlog

from federator.runtime.clocks import wall_clock_us
from federator.runtime.filter_file import FilterFile

KEEP_US: Final = 86_400_000_000
"""How old what a broker restores may be: a day, where Mosquitto saves every half hour."""

_log = structlog.get_logger()


class SessionFilters:
    """The filters of one session.

    Args:
        file: Lists each filter: 0 while it is subscribed, then when it was unsubscribed.
    """

    def __init__(self, file: FilterFile) -> None:
        self._file = file
        self._complained = False

    def recalled(self) -> list[str]:
        """What earlier processes subscribed, without what is too old to come back."""
        oldest_us = wall_clock_us() - KEEP_US
        listed = self._file.load()
        old = {each for each, gone_us in listed.items() if 0 < gone_us < oldest_us}
        self._forget(old)
        return [each for each in listed if each not in old]

    def on_subscribe(self, filters: Iterable[str]) -> None:
        """``filters`` are about to be subscribed."""
        self._note(filters, 0)

    def on_unsubscribe(self, filters: Iterable[str]) -> None:
        """``filters`` are about to be unsubscribed."""
        self._note(filters, wall_clock_us())

    def clear(self, *, but: Iterable[str]) -> None:
        """The broker has no session of ours: it can restore nothing that is older."""
        self._forget(self._file.load().keys() - set(but))

    def _note(self, filters: Iterable[str], time_us: int) -> None:
        try:
            self._file.note_all(filters, time_us)
        except OSError as error:
            self._complain(error)

    def _forget(self, filters: Iterable[str]) -> None:
        try:
            for each in filters:
                self._file.forget(each)
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            _log.warning("cover.list_failed", reason=error.strerror or str(error))
