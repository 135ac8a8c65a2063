import asyncio
import os
import signal

import pytest
from click.exceptions import Exit

from lab.frame.printing import until_stopped


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_interrupt_the_clean_up(which):
    cleaned_up = False

    async def work() -> None:
        nonlocal cleaned_up
        try:
            os.kill(os.getpid(), which)
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.05)
            cleaned_up = True

    with pytest.raises(Exit) as ended:
        asyncio.run(until_stopped(work(), name="work"))
    assert ended.value.exit_code == 128 + which
    assert cleaned_up


def test_what_ends_by_itself_has_its_outcome():
    async def work() -> str:
        return "done"

    assert asyncio.run(until_stopped(work(), name="work")) == "done"
