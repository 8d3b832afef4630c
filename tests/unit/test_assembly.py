"""What the daemon is put together from."""

import asyncio
import threading

from broker.assembly import ticking


def test_a_tick_is_done_on_the_loop_and_wakes_who_waits_for_it() -> None:
    async def one_tick() -> list[int]:
        rung, threads = asyncio.Event(), list[int]()

        def ring() -> None:
            threads.append(threading.get_ident())
            rung.set()

        scheduler = ticking((ring, 0.01))
        scheduler.start()
        try:
            # Nothing else wakes this loop: an event that was set in another thread would be seen by nobody.
            await asyncio.wait_for(rung.wait(), 10)
        finally:
            scheduler.shutdown(wait=False)
        return threads

    assert set(asyncio.run(one_tick())) == {threading.get_ident()}
