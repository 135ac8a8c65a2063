"""Syntax, matching, joins and covers, filter by filter."""

from pathlib import Path

from federator.protocol.filters import (
    Cover,
    FilterTrie,
    join,
    matches,
    validate_filter,
    validate_topic,
    without_share,
)
from federator.protocol.filters.renames import Renames, check_pairs
from tests.transcripts import play, scenes


class Stage:
    """``filter`` and ``topic`` print why a text is refused, and nothing of those that are accepted.

    ``match FILTER TOPICS`` prints the topics that match; ``cover +FILTER -FILTER`` which filters
    the cover adds and removes; ``covers FILTER`` what covers it, or the whole cover.
    ``renames LOCAL=FEDERATION`` prints what is wrong; then ``outward`` and ``inward`` print names,
    ``asks`` and ``subscribes`` filters.
    """

    def __init__(self):
        self.cover = Cover()

    def do(self, command, *words):
        try:
            yield from getattr(self, f"_{command}")(*words)
        except ValueError as refusal:
            yield str(refusal)

    def _filter(self, *texts):
        assert all(validate_filter(text) == text for text in texts)
        return ()

    def _topic(self, *texts):
        assert all(validate_topic(text) == text for text in texts)
        return ()

    def _shared(self, *filters):
        return map(without_share, filters)

    def _match(self, filter_, *topics):
        trie = FilterTrie()
        trie.add(filter_)
        found = [topic for topic in topics if matches(filter_, topic)]
        assert found == [topic for topic in topics if trie.match(topic)]
        return found or ("none",)

    def _join(self, a, b):
        return dict.fromkeys(joined(*pair) for pair in ((a, b), (b, a)))

    def _cover(self, *words):
        added, removed = ([word[1:] for word in words if word[0] == sign] for sign in "+-")
        change = self.cover.update(added, removed)
        assert bool(change) == bool(change.subscribe or change.unsubscribe)
        for sign, filters in (("+", change.subscribe), ("-", change.unsubscribe)):
            if filters:
                yield " ".join([sign, *filters])

    def _renames(self, *pairs):
        pairs = [tuple(pair.split("=")) for pair in pairs]
        if (wrong := check_pairs(pairs)) is not None:
            return map(str, wrong)
        self.renames = Renames(pairs)
        return ()

    def _outward(self, *topics):
        return map(str, map(self.renames.outward, topics))

    def _inward(self, *topics):
        return map(str, map(self.renames.inward, topics))

    def _asks(self, filter_):
        return self.renames.filter_outward(filter_)

    def _subscribes(self, filter_):
        return self.renames.filter_inward(filter_)

    def _covers(self, *filters):
        return map(str, map(self.cover.covering, filters)) if filters else self.cover.filters


def joined(a, b):
    """Their join, or why there is none."""
    try:
        return join(a, b)
    except ValueError as refusal:
        return str(refusal)


@scenes(*Path(__file__).parent.glob("*.txt"))
def test_transcript(path, number):
    play(path, number, Stage())
