"""Both ends of a channel wait awake while that takes less time, and asleep beside processes that compute."""

from __future__ import annotations

from rowlock.cluster.channel.waits import WaitChoice


def awake_for(choice: WaitChoice, awake: float, asleep: float, seconds: float) -> float:
    """Have answers take so long either way; return for which part of the time they were waited for awake."""
    spent = {True: 0.0, False: 0.0}
    while sum(spent.values()) < seconds:
        way = choice.awake
        took = awake if way else asleep
        choice.note(took)
        spent[way] += took
    return spent[True] / sum(spent.values())


def test_the_way_that_takes_less_time_is_chosen_and_the_other_tried_ever_less_often() -> None:
    for awake, asleep in ((1e-4, 2e-4), (4e-3, 3e-4)):
        choice = WaitChoice()
        share = awake_for(choice, awake, asleep, 2.0)
        assert (share > 0.85) if awake < asleep else (share < 0.15)
        awake_for(choice, awake, asleep, 60.0)
        share = awake_for(choice, awake, asleep, 60.0)
        assert (share > 0.99) if awake < asleep else (share < 0.01)


def test_a_busy_process_is_noticed_at_once_and_its_end_soon() -> None:
    choice = WaitChoice()
    awake_for(choice, 1e-4, 2e-4, 100.0)
    awake_for(choice, 4e-3, 3e-4, 0.2)
    assert awake_for(choice, 4e-3, 3e-4, 0.9) == 0.0
    awake_for(choice, 1e-4, 2e-4, 2.5)
    assert awake_for(choice, 1e-4, 2e-4, 0.9) > 0.9


def test_ways_that_take_as_long_are_not_changed_for_each_other() -> None:
    choice = WaitChoice()
    assert awake_for(choice, 1e-3, 0.95e-3, 100.0) > 0.98
