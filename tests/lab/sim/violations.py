"""What seeds of a mutant violated."""


def assert_caught(results, invariants):
    """The first violation of ``results`` is of one of ``invariants``; later ones are not run."""
    violation = next((r.violation for r in results if r.violation is not None), None)
    assert violation is not None, "no seed showed it"
    assert violation.invariant in invariants, violation
