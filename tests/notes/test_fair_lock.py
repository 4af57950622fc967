import asyncio

from redraft.notes.fair_lock import FairLock, fair_lock


def test_waiters_run_in_order_and_cancelled_ones_are_skipped():
    async def main():
        turns, order = FairLock(), []

        async def take(number):
            async with turns:
                order.append(number)
                await asyncio.sleep(0)

        async with turns:
            waiting = [asyncio.create_task(take(number)) for number in range(5)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            waiting[2].cancel()
            await asyncio.sleep(0)
        waiting[1].cancel()  # its turn has come, and it has not begun
        await asyncio.gather(*waiting, return_exceptions=True)
        assert order == [3, 4]
        await take(9)
        assert order == [3, 4, 9]

    asyncio.run(main())


def test_waiters_of_closed_event_loops_are_skipped():
    turns = FairLock()
    loop = asyncio.new_event_loop()

    async def main():
        async with turns:
            gone = loop.create_future()
            turns._waiting.append(gone)
            loop.close()
        async with turns:
            pass

    asyncio.run(main())


def test_fair_lock_returns_the_same_lock_for_a_name_while_it_is_referenced():
    held = fair_lock("a")
    assert fair_lock("a") is held
    assert fair_lock("b") is not held
