"""What publications suffer on the way, by TCP and in datagrams, in one run; held against the bar.

By turns for each transport: agents start afresh, and some seconds of the same traffic let them
learn what the roads lose; TCP has less to learn. Then come the flows that count, one per QoS. With
datagrams, repair packets and parts of that time are compared with what the model asks for at the
roads' true loss. At the end the roads lose nothing more, and what datagrams cost then is measured.

Delays are compared round by round, for what a shared machine adds differs from minute to minute;
the median of the rounds decides. All else is of all rounds together.

Source: docs/udp-fec.md, "Measured".
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from federator.config.transports import UdpSettings
from federator.errors import LinkError
from federator.protocol.datagrams.protection import repairs_for
from lab.bench.lossy.stage import Line
from lab.frame.printing import Bar
from lab.frame.settings import numbers, setting
from lab.grid.streams import Stream, flowing

TCP: Final = "tcp"
DATAGRAMS: Final = "udp-fec"
TRANSPORTS: Final = (TCP, DATAGRAMS)
ALL_ROUNDS: Final = 0
WARM_UP: Final = 200
"""Publications before those that count, where nothing is to be learnt."""

QUIET_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured."""

    hops: int = setting(3, "", 1, 9)
    delay_ms: float = setting(50.0, "", 0, 1_000)
    plr: float = setting(0.02, "", 0, 0.3)
    abl: float = setting(2.0, "", 1, 16)
    rate_hz: float = setting(100.0, "", 1, 5_000, option="--rate")
    rounds: int = setting(3, "", 1, 100)
    count: int = setting(1_200, "", 100, 1_000_000)
    learning: int = setting(1_000, "", 1, 1_000_000)
    forgetting: int = setting(2_500, "", 1, 1_000_000)
    qos: tuple[int, ...] = setting("0,1", among=("0", "1", "0,1"), parse=numbers)
    wait_ms: int | None = setting(None, "udp.wait_ms of the agents.", 1, 255)
    seed: int = setting(1)

    @property
    def udp(self) -> dict[str, Any]:
        return {} if self.wait_ms is None else {"wait_ms": self.wait_ms}


@dataclass(frozen=True, slots=True)
class Row:
    """One flow. Delays in milliseconds; bytes are those of IP packets on all roads, both ways."""

    transport: str
    qos: int
    plr: float
    offered: int
    delivered: int
    twice: int
    p50: float
    p95: float
    p99: float
    worst: float
    bytes_per_publication: float
    lost_packets: float
    # Repair packets beside each packet of data; ``None`` over TCP.
    repairs_per_part: float | None = None
    model: float | None = None  # the same, as asked for by the model at the roads' true loss
    by_broker: int | None = None
    turn: int = ALL_ROUNDS  # the round; ``ALL_ROUNDS``: of all of them together


@dataclass(slots=True)
class _Sample:
    """What was seen of one kind of flow."""

    offered: int = 0
    twice: int = 0
    delays_ms: list[float] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)
    spent: Counter[str] = field(default_factory=Counter)


_Kind = tuple[str, int, float, int]  # transport, QoS, PLR, round
_Samples = dict[_Kind, _Sample]


async def measure(plan: Plan, folder: Path, *, progress: Callable[[str], None]) -> list[Row]:
    """Run all flows, transports by turns. Raises ``LinkError``: something did not start."""
    samples: _Samples = {}
    async with Line(folder, hops=plan.hops, delay_ms=plan.delay_ms, seed=plan.seed) as line:
        for turn in range(1, plan.rounds + 1):
            for transport in TRANSPORTS:
                progress(f"{transport}, round {turn} of {plan.rounds}")
                await line.roads(plr=0.0, abl=1.0)
                await line.start_agents(transport, plan.udp)
                await _Flows(plan, line, transport, turn, samples).run()
                await line.stop_agents()
    return [_row(kind, sample, plan) for kind, sample in samples.items()]


@dataclass(frozen=True, slots=True)
class _Flows:
    """The flows through agents of one start."""

    _plan: Plan
    _line: Line
    _transport: str
    _turn: int
    _samples: _Samples

    async def run(self) -> None:
        plan, line = self._plan, self._line
        first, *_, last = line.brokers
        stream = line.stream(("first", first), ("last", last))
        async with flowing([stream]):
            await line.roads(plr=plan.plr, abl=plan.abl)
            await self._prepare(stream, plan.learning)
            for qos in plan.qos:
                await self._flow(stream, qos, plan.plr)
            if self._turn == plan.rounds:
                await line.roads(plr=0.0, abl=1.0)
                await self._prepare(stream, plan.forgetting)
                await self._flow(stream, min(plan.qos), 0.0)

    async def _prepare(self, stream: Stream, count: int) -> None:
        count = WARM_UP if self._transport == TCP else count
        await stream.evenly(count, self._plan.rate_hz, qos=0, silence_s=QUIET_S)

    async def _flow(self, stream: Stream, qos: int, plr: float) -> None:
        plan = self._plan
        before = await self._counts()
        came = await stream.evenly(plan.count, plan.rate_hz, qos=qos, silence_s=QUIET_S)
        after = await self._counts()
        for turn in (ALL_ROUNDS, self._turn):
            sample = self._samples.setdefault((self._transport, qos, plr, turn), _Sample())
            for total, now, then in zip((sample.passed, sample.spent), after, before, strict=True):
                total.update({key: now[key] - then[key] for key in now})
            sample.offered += plan.count
            sample.twice += came.duplicates
            sample.delays_ms += came.delays_ms

    async def _counts(self) -> tuple[Counter[str], Counter[str]]:
        passed: Counter[str] = Counter()
        for way in (await self._line.roads()).values():
            passed.update(way)
        spent = Counter[str]()
        if self._transport != TCP:
            spent = await _datagrams(self._line)
        return passed, spent


def _row(kind: _Kind, sample: _Sample, plan: Plan) -> Row:
    transport, qos, plr, turn = kind
    ordered, passed, spent = sorted(sample.delays_ms), sample.passed, sample.spent
    if not ordered:
        raise LinkError(f"{transport}: nothing arrived")
    row = Row(
        transport,
        qos,
        plr,
        offered=sample.offered,
        delivered=len(ordered),
        twice=sample.twice,
        p50=_quantile(ordered, 0.5),
        p95=_quantile(ordered, 0.95),
        p99=_quantile(ordered, 0.99),
        worst=ordered[-1],
        bytes_per_publication=passed["bytes"] / sample.offered,
        lost_packets=passed["lost"] / max(1, passed["packets"]),
        turn=turn,
    )
    if not spent:
        return row
    cost, model = spent["repairs"] / max(1, spent["parts"]), _model(spent, plr, plan)
    return replace(row, repairs_per_part=cost, model=model, by_broker=spent["given_back"])


def _model(spent: Mapping[str, int], plr: float, plan: Plan) -> float:
    """Repair packets per part that groups of the mean length need on such a road."""
    limits = UdpSettings(**plan.udp).limits()
    length = spent["parts"] / max(1, spent["groups"])
    short, share = int(length), length % 1
    needed = [
        repairs_for(
            max(1, parts),
            plr,
            plan.abl,
            failing_max=limits.failing_max,
            repairs_max=limits.repairs_max,
            late_max=limits.late_max,
        )
        for parts in (short, short + 1)
    ]
    return (needed[0] * (1 - share) + needed[1] * share) / length


def _quantile(ordered_ms: list[float], share: float) -> float:
    return ordered_ms[min(len(ordered_ms) - 1, int(len(ordered_ms) * share))]


async def _datagrams(line: Line) -> Counter[str]:
    total: Counter[str] = Counter(parts=0, repairs=0, groups=0, given_back=0)
    for i, status in (await line.pages("/status")).items():
        for link in status["links"]:
            if link["neighbour"] == i + 1:
                for key in total:
                    total[key] += link["datagrams"]["out"][key]
    return total


P99_SHARE_MAX: Final = 0.5
DELIVERED_MIN: Final = {0: 0.999, 1: 1.0}
MODEL_SHARE_MAX: Final = 1.2
LOSSLESS_MAX: Final = 0.05


def judged(rows: list[Row]) -> list[Bar]:
    of_all = [row for row in rows if (row.transport, row.turn) == (DATAGRAMS, ALL_ROUNDS)]
    return [part for row in of_all for part in (_lossy if row.plr else _lossless)(row, rows)]


def _lossy(row: Row, rows: list[Row]) -> Iterator[Bar]:
    name = f"QoS {row.qos}"
    shares = [
        round_.p99 / _beside(round_, rows).p99
        for round_ in rows
        if (round_.transport, round_.qos, round_.plr) == (DATAGRAMS, row.qos, row.plr)
        and round_.turn != ALL_ROUNDS
    ]
    middle = median(shares)
    yield Bar(
        f"{name}: p99 delay, of TCP's; median of rounds",
        f"<= {P99_SHARE_MAX}",
        f"{middle:.3f} ({', '.join(f'{share:.3f}' for share in shares)})",
        middle <= P99_SHARE_MAX,
    )
    delivered, wanted = row.delivered / row.offered, DELIVERED_MIN[row.qos]
    got = f"{delivered:.3%}, {row.twice} twice"
    yield Bar(f"{name}: delivered", f">= {wanted:.1%}", got, delivered >= wanted)
    assert row.repairs_per_part is not None, "datagrams were used"
    assert row.model is not None, "datagrams were used"
    share = (1 + row.repairs_per_part) / (1 + row.model)
    what = f"{name}: packets, of the model's"
    yield Bar(what, f"<= {MODEL_SHARE_MAX}", f"{share:.3f}", share <= MODEL_SHARE_MAX)


def _lossless(row: Row, rows: list[Row]) -> Iterator[Bar]:
    assert row.repairs_per_part is not None, "datagrams were used"
    name, cost = "without loss, again", row.repairs_per_part
    wanted = f"<= {LOSSLESS_MAX:.0%}"
    yield Bar(f"{name}: repair packets", wanted, f"{cost:.1%}", cost <= LOSSLESS_MAX)
    share = row.bytes_per_publication / _beside(row, rows).bytes_per_publication
    most = 1 + LOSSLESS_MAX
    yield Bar(f"{name}: IP bytes, of TCP's", f"<= {most}", f"{share:.3f}", share <= most)


def _beside(row: Row, rows: list[Row]) -> Row:
    wanted = (TCP, row.qos, row.plr, row.turn)
    return next(r for r in rows if (r.transport, r.qos, r.plr, r.turn) == wanted)
