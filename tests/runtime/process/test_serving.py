"""How a daemon runs."""

import gc

from federator.runtime.process.serving import run_to_end


def test_the_collector_of_garbage_passes_over_what_there_was_before_the_loop():
    looked_at = []

    async def main():
        looked_at.append(len(gc.get_objects()))

    before = len(gc.get_objects())
    try:
        run_to_end(main())
    finally:
        gc.unfreeze()

    assert looked_at[0] < before / 10
