"""What the paper's text says about Figures 8 to 22, and whether our table says the same.

Each claim is a sentence, the figure it is about, and a check on mean values. ``told`` puts our
figures beside it.

Source: Fawwaz 2022, 5.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

from lab.papers import figures

Curve = Mapping[float, float]
Means = Mapping[tuple[int, str], Curve]  # by figure and series: mean over seeds by x


Claim = figures.Claim[Means]


def means(rows: Iterable[figures.Row]) -> Means:
    return {
        key: {x: sum(values) / len(values) for x, values in curve.items()}
        for key, curve in figures.by_series(rows).items()
    }


def _rises(curve: Curve) -> bool:
    return all(a < b for a, b in pairwise(curve.values()))


def _falls(curve: Curve) -> bool:
    return _rises({x: -value for x, value in curve.items()})


def _alike(one: Curve, other: Curve, share: float = 1e-9) -> bool:
    return all(abs(one[x] - other[x]) <= share * max(abs(one[x]), 1e-12) for x in one)


def _below(
    m: Means, figure: int, low: str, high: str, *, at: Iterable[float] | None = None
) -> bool:
    one, other = m[figure, low], m[figure, high]
    return all(one[x] < other[x] for x in (at if at is not None else one))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def _at(figure: int, x: float, *series: str, unit: float = 1.0) -> Callable[[Means], str]:
    def told(m: Means) -> str:
        return (
            ", ".join(f"{name} {_number(m[figure, name][x] / unit)}" for name in series)
            + f" at {x:g}"
        )

    return told


def _ends(figure: int, *series: str) -> Callable[[Means], str]:
    def told(m: Means) -> str:
        curves = [(name, list(m[figure, name].values())) for name in series]
        return ", ".join(f"{name} {_number(c[0])} to {_number(c[-1])}" for name, c in curves)

    return told


_SIX = ("centralised", "lp", "ns", "ep", "sf", "emma")

CLAIMS = (
    Claim(
        8,
        "centralised: 300,000 messages, whatever the locality",
        lambda m: set(m[8, "centralised"].values()) == {300_000.0},
        _at(8, 0.05, "centralised"),
    ),
    Claim(
        8,
        "at 5 % locality LP is highest of the distributed, near centralised; then NS; EP, EMMA and "
        "SF alike",
        lambda m: (
            m[8, "lp"][0.05] > 0.95 * m[8, "centralised"][0.05]
            and m[8, "lp"][0.05] > m[8, "ns"][0.05] > m[8, "ep"][0.05]
            and _alike(m[8, "ep"], m[8, "emma"])
            and _alike(m[8, "ep"], m[8, "sf"])
        ),
        _at(8, 0.05, *_SIX),
    ),
    Claim(
        8,
        "falls with locality; at 100 % zero for all but LP",
        lambda m: (
            all(_falls(m[8, s]) for s in _SIX[1:])
            and m[8, "ns"][1] == m[8, "ep"][1] == m[8, "sf"][1] == 0 < m[8, "lp"][1]
        ),
        _at(8, 1.0, "lp", "ns", "ep"),
    ),
    Claim(
        9,
        "LP handles least; NS and EP significantly less than EMMA and SF",
        lambda m: (
            all(_below(m, 9, "lp", s) for s in ("ns", "ep", "emma", "sf"))
            and all(_below(m, 9, s, "emma", at=(0.05, 0.5)) for s in ("ns", "ep"))
            and m[9, "ep"][0.5] < 0.7 * m[9, "emma"][0.5]
        ),
        _at(9, 0.5, *_SIX[1:]),
    ),
    Claim(
        9,
        "handled messages become similar as locality rises",
        lambda m: (
            _alike({1: m[9, "ep"][1.0]}, {1: m[9, "emma"][1.0]}, 0.01)
            and m[9, "lp"][1.0] > 0.9 * m[9, "emma"][1.0]
        ),
        _at(9, 1.0, *_SIX[1:]),
    ),
    Claim(
        10,
        "SF's table is much larger than the proposed ones' at any locality",
        lambda m: all(
            m[10, "sf"][x] > 5 * m[10, s][x] for x in m[10, "sf"] for s in ("lp", "ns", "ep")
        ),
        _at(10, 0.5, *_SIX[1:], unit=1000),
    ),
    Claim(
        10,
        "EMMA's is much larger at low locality, and not larger at 100 %",
        lambda m: (
            m[10, "emma"][0.05] > 5 * m[10, "ep"][0.05]
            and m[10, "emma"][1.0] <= m[10, "ep"][1.0] * (1 + 1e-9)
        ),
        _ends(10, "ep", "emma"),
    ),
    Claim(
        10,
        "at high locality EMMA's is smaller than the proposed ones'",
        lambda m: m[10, "emma"][0.95] < m[10, "ep"][0.95],
        _at(10, 0.95, "lp", "ep", "emma", unit=1000),
        differs="equal at 100 %; below, what is wanted outside is flooded to every broker",
    ),
    Claim(
        11,
        "rises with subscribers; EP and EMMA alike; LP twice the others at 0.5",
        lambda m: (
            all(_rises(m[11, s]) for s in _SIX)
            and _alike(m[11, "ep"], m[11, "emma"])
            and m[11, "lp"][0.5] > 2 * m[11, "ns"][0.5]
        ),
        _at(11, 0.5, *_SIX),
    ),
    Claim(
        11,
        "NS and LP nearly identical at 3.9; NS and EP apart more and more",
        lambda m: (
            m[11, "lp"][3.9] < 1.01 * m[11, "ns"][3.9]
            and _rises({x: m[11, "ns"][x] - m[11, "ep"][x] for x in m[11, "ns"]})
        ),
        _at(11, 3.9, "lp", "ns", "ep"),
    ),
    Claim(
        12,
        "rises with subscribers; EP below EMMA, which rises more steeply",
        lambda m: (
            all(_rises(m[12, s]) for s in _SIX[1:])
            and _below(m, 12, "ep", "emma")
            and _rises({x: m[12, "emma"][x] - m[12, "ep"][x] for x in m[12, "ep"]})
        ),
        _ends(12, "ep", "emma"),
    ),
    Claim(
        13,
        "NS and LP share one table size; EMMA's rises more steeply",
        lambda m: (
            _alike(m[13, "ns"], m[13, "lp"])
            and _rises({x: m[13, "emma"][x] - m[13, "ep"][x] for x in m[13, "ep"]})
        ),
        _ends(13, "lp", "ns", "ep", "emma"),
    ),
    Claim(
        14,
        "EP and EMMA alike and falling with popularity's concentration, NS falling, LP rising",
        lambda m: (
            _alike(m[14, "ep"], m[14, "emma"])
            and _falls(m[14, "ep"])
            and _falls(m[14, "ns"])
            and _rises(m[14, "lp"])
        ),
        _ends(14, "lp", "ns", "ep"),
    ),
    Claim(
        15,
        "EP's rises (ours up to K = 1.5, then level within 1 %), LP's and EMMA's fall",
        lambda m: (
            _rises({x: v for x, v in m[15, "ep"].items() if x <= 1.5})
            and m[15, "ep"][2.0] > 0.99 * m[15, "ep"][1.5]
            and _falls(m[15, "lp"])
            and _falls(m[15, "emma"])
        ),
        _ends(15, "lp", "ep", "emma"),
    ),
    Claim(
        16,
        "tables shrink as popularity concentrates",
        lambda m: all(_falls(m[16, s]) for s in _SIX[1:]),
        _ends(16, *_SIX[1:]),
    ),
    Claim(
        17,
        "power rises with topics; optimal below greedy below random, further apart the more topics",
        lambda m: (
            all(_rises(m[17, s]) for s in ("random", "greedy", "optimal"))
            and _below(m, 17, "optimal", "greedy")
            and _below(m, 17, "greedy", "random")
            and m[17, "greedy"][20] - m[17, "optimal"][20]
            > m[17, "greedy"][4] - m[17, "optimal"][4]
        ),
        _at(17, 20, "random", "greedy", "optimal", unit=1000),
    ),
    Claim(
        17,
        "with few topics greedy and optimal are similar (within 10 %)",
        lambda m: m[17, "greedy"][4] < 1.1 * m[17, "optimal"][4],
        _at(17, 4, "greedy", "optimal", unit=1000),
        differs="most services use a topic, so containers depend on each other already",
    ),
    Claim(
        18,
        "network usage follows the same trend",
        lambda m: (
            all(_rises(m[18, s]) for s in ("random", "greedy", "optimal"))
            and _below(m, 18, "optimal", "greedy")
        ),
        _at(18, 20, "random", "greedy", "optimal"),
    ),
    Claim(
        19,
        "at 50 % utilisation the reduction is 20 % (optimal; ours within 5 points) and under 5 % "
        "(greedy)",
        lambda m: 0.15 < m[19, "optimal"][0.5] < 0.25 and m[19, "greedy"][0.5] < 0.05,
        _at(19, 0.5, "optimal", "greedy", unit=0.01),
    ),
    Claim(
        19,
        "both fall with utilisation",
        lambda m: (
            m[19, "optimal"][0.5] < m[19, "optimal"][0.05]
            and m[19, "greedy"][0.5] < m[19, "greedy"][0.05]
        ),
        _ends(19, "optimal", "greedy"),
    ),
    Claim(
        19,
        "at 5 to 10 % they are similar (within 3 points)",
        lambda m: all(m[19, "optimal"][x] - m[19, "greedy"][x] < 0.03 for x in (0.05, 0.1)),
        lambda m: "; ".join(_at(19, x, "optimal", "greedy", unit=0.01)(m) for x in (0.05, 0.1)),
        differs="as in Figure 17",
    ),
    Claim(
        20,
        "power rises with services, and greedy's distance from optimal with it",
        lambda m: (
            all(_rises(m[20, s]) for s in ("random", "greedy", "optimal"))
            and m[20, "greedy"][15] - m[20, "optimal"][15]
            > m[20, "greedy"][2] - m[20, "optimal"][2]
        ),
        _at(20, 15, "random", "greedy", "optimal", unit=1000),
    ),
    Claim(
        21,
        "random fails from 70 % load, in 70 % of runs at 90 (ours within 15 points); greedy less, "
        "optimal least",
        lambda m: (
            m[21, "random"][0.6] < 0.01 < m[21, "random"][0.7]
            and abs(m[21, "random"][0.9] - 0.7) < 0.15
            and m[21, "optimal"][0.9] <= m[21, "greedy"][0.9] < m[21, "random"][0.9]
        ),
        _at(21, 0.9, "random", "greedy", "optimal", unit=0.01),
    ),
    Claim(
        21,
        "greedy fails hardly below 80 % load, in 40 % of runs at 90 (ours within 15 points), "
        "optimal in few",
        lambda m: (
            m[21, "greedy"][0.7] < 0.02
            and abs(m[21, "greedy"][0.9] - 0.4) < 0.15
            and m[21, "optimal"][0.9] < 0.15
        ),
        _at(21, 0.9, "greedy", "optimal", unit=0.01),
    ),
    Claim(
        22,
        "at 80 % load the reduction is 26 % (optimal) and 10 % (greedy), ours within 6 points",
        lambda m: (
            abs(m[22, "optimal"][0.8] - 0.26) < 0.06 and abs(m[22, "greedy"][0.8] - 0.10) < 0.06
        ),
        _at(22, 0.8, "optimal", "greedy", unit=0.01),
    ),
    Claim(
        22,
        "greedy's reduction falls as load rises",
        lambda m: _falls(m[22, "greedy"]),
        _ends(22, "greedy"),
    ),
    Claim(
        22,
        "up to 40 % load optimal's reduction is constant (within 2 points)",
        lambda m: abs(m[22, "optimal"][0.2] - m[22, "optimal"][0.4]) < 0.02,
        _ends(22, "optimal"),
        differs="less load leaves more to the devices that draw least, down to the last container",
    ),
)
