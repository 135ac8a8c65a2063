"""The sections about topics: filters, rules, renames, and loop detection."""

from typing import Annotated, Literal, Protocol

from annotated_types import Interval, MaxLen

from federator.config.section import Section, Switch, Takes, WholeNumber, readable_by, wrong
from federator.protocol.filters import validate_filter
from federator.protocol.filters.renames import check_pairs, is_prefix
from federator.protocol.policy.rules import EVERYTHING, conflict

CONFIGURED_FILTERS_MAX = 8_192
RENAMES_MAX = 64


def _check_topic_filter(text: str) -> None:
    try:
        validate_filter(text)
    except ValueError as error:
        what = f"{text[:60]!r} is not a topic filter ({error})"
        raise ValueError(f"{what}: write one like sensors/+/temp or a/#") from error
    if text.startswith("$"):
        raise ValueError(f"{text[:60]!r} starts with $, which never leaves a broker: remove it")


TopicFilter = Annotated[str, readable_by(_check_topic_filter)]
TopicFilters = Annotated[tuple[TopicFilter, ...], MaxLen(CONFIGURED_FILTERS_MAX)]


class RenameSettings(Section):
    """Topics with another name in the federation. Both prefixes end with /, or are empty."""

    local: str
    """Prefix of topics on this broker, such as plant7/; "" matches all."""
    federation: str
    """Its replacement in the federation, such as eu/plant7/; "" removes the prefix."""
    whole: Switch = False
    """Both are whole topics, not prefixes."""

    def mistake(self) -> tuple[str, str, str] | None:
        """The first invalid key, with what is wrong and how to mend it."""
        for key, text in (("local", self.local), ("federation", self.federation)):
            if self.whole and is_prefix(text):
                return key, f"{text[:60]!r} with whole = true is no topic", "write one like plant7"
            if not self.whole and not is_prefix(text):
                what = f"{text[:60]!r} does not end with / after a name"
                return key, what, "write one like plant7/ (whole = true: this topic alone)"
        return None


class RulesSettings(Section):
    """The edge of this broker: which topics cross between it and the federation."""

    imports: TopicFilters = EVERYTHING
    """Clients' filters are announced when one of these contains them."""
    exports: TopicFilters = EVERYTHING
    """Clients' publications may leave when one of these matches the topic,"""
    keep: TopicFilters = ()
    """and none of these does: topics of this broker that no other broker needs."""
    placed: Switch = False
    """Let a steerer place topics (its [keep]): while its plan says so, publications stay here that
    only its hub wants, to collect them; at the hub, clients' subscriptions to the collected filters
    count as collecting."""
    deny: TopicFilters = ()
    """Topics that neither leave this broker nor arrive nor are relayed, by their names in the
    federation. Set the same at all agents."""
    rename: Annotated[tuple[RenameSettings, ...], Takes.RESTART, MaxLen(RENAMES_MAX)] = ()
    """Prefixes with another name in the federation: `[{local = "plant7/", federation =
    "eu/plant7/"}]`; "" as local puts one before all topics, as federation it takes one away; with
    `whole = true` both are one topic. The longest match applies. All rules but deny use local
    names."""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The renames as pairs of prefixes."""
        return tuple((rename.local, rename.federation) for rename in self.rename)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._renames_are_unambiguous()
        self._no_rule_is_in_vain()

    def _renames_are_unambiguous(self) -> None:
        for at, rename in enumerate(self.rename):
            if (wrongly := rename.mistake()) is not None:
                key, what, mend = wrongly
                raise wrong(f"rename.{at}.{key}", f"rules.rename[{at}].{key} = {what}", mend)
        if (mistake := check_pairs(self.pairs)) is not None:
            at, half, text = mistake
            what, _, mend = text.rpartition(": ")
            key = ("local", "federation")[half]
            raise wrong(f"rename.{at}.{key}", f"rules.rename[{at}].{key} = {what}", mend)

    def _no_rule_is_in_vain(self) -> None:
        check_conflict(self, "rules", self.keep, by="rules.keep", only_out=True)
        if not self.rename:  # otherwise deny uses other names
            check_conflict(self, "rules", self.deny)


class LoopSettings(Section):
    """Detection of publications that circulate through a bridge beside the federation."""

    watch: Literal["auto", "always", "never"] = "auto"
    """"auto" looks for loops while the broker reports a connected bridge, and now and then for
    unreported bridges of both directions; "always" looks all the time."""
    turnaround_ms_max: Annotated[WholeNumber, Interval(ge=5, le=2_000)] = 250
    """Longest round trip of a loop that is looked for. A suspected topic is delayed by up to 8
    times as much, a few times."""
    repeats_min: Annotated[WholeNumber, Interval(ge=2, le=1_000)] = 8
    """Repetitions of one publication before its topic is suspected."""
    window_ms: Annotated[WholeNumber, Interval(ge=100, le=60_000)] = 2_000
    """How long a publication is expected back once a loop is established."""
    trust: TopicFilters = ()
    """Topics that are never suspected, by their names on this broker."""


class Directions(Protocol):
    """The rules of a section: filters for topics that may come in and go out."""

    @property
    def imports(self) -> tuple[str, ...]: ...

    @property
    def exports(self) -> tuple[str, ...]: ...


def check_conflict(
    rules: Directions,
    key: str,
    forbidding: tuple[str, ...],
    *,
    by: str = "rules.deny",
    only_out: bool = False,
    at: str = "",
) -> None:
    """Refuse an import or export rule that ``forbidding`` makes useless.

    In the error, ``key`` names the section of ``rules``, and ``by`` the key of ``forbidding``. With
    ``only_out`` imports are not checked. ``at`` is the section relative to the validated one.
    """
    imports = () if only_out else rules.imports
    found = conflict(imports=imports, exports=rules.exports, against=forbidding)
    if found is not None:
        side, index, other = found
        rule = (imports if side == "import" else rules.exports)[index]
        what = f"{key}.{side}[{index}] = {rule!r} lets nothing cross, for {by} has {other!r}"
        raise wrong(f"{at}.{side}.{index}".removeprefix("."), what, "remove one of the two")
