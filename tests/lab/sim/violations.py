"""What seeds violated, and how to tell each of them again."""


def violations(results, options="", *, nodes=False):
    """A line for each that violated something.

    ``options`` of ``federator-lab sim`` draw it again, with its ``nodes`` where they were given.
    """
    return [
        f"federator-lab sim {options}{f' --nodes {r.nodes}' if nodes else ''} --seed {r.seed}"
        f" --seeds 1: {r.violation}"
        for r in results
        if r.violation is not None
    ]


def assert_caught(results, invariants):
    """The first violation of ``results`` is of one of ``invariants``; later ones are not run."""
    violation = next((r.violation for r in results if r.violation is not None), None)
    assert violation is not None, "no seed showed it"
    assert violation.invariant in invariants, violation
