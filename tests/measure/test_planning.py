"""Which comparison is measured next: pure decisions, and whole runs against made-up noise."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from lockstep.analysis.confidence import MIN_ROUNDS
from lockstep.analysis.statistics import mean_of
from lockstep.measure.outlook import fewest_minutes, not_begun, outlook
from lockstep.measure.planning import DAY_SECONDS, Comparison, Progress, choose


def state(rounds: int = 0, noise: float = 0.02, seconds: float = 10.0, headline: bool = False) -> Progress:
    logs = list(noise * np.resize([-1.0, 1.0], rounds))
    return Progress(Comparison((0, 1), headline), logs, [seconds] * rounds)


def test_a_pair_is_measured_back_to_back_and_mirrored() -> None:
    assert Comparison((3, 7)).visits == (3, 7, 7, 3)
    assert Comparison((3,)).visits == (3,)
    assert Comparison((3, 5, 8), once=True).visits == (3, 5, 8), "many cells, each once"


def test_a_narrow_interval_is_settled_and_gets_no_more_time() -> None:
    assert state(40).settled and not state(40).open
    assert not state(4).settled, "fewer rounds have no interval"
    assert choose([state(40), state(40)], 1000.0) is None


def test_headlines_come_first_then_what_has_no_interval_then_the_quickest() -> None:
    plain, headline = state(2), state(2, headline=True)
    assert choose([plain, headline], 1e6) == 1
    assert choose([state(6, noise=0.08), state(2, noise=0.08)], 1e6) == 1
    assert choose([state(2, seconds=20.0), state(2, seconds=5.0)], 1e6) == 1


def test_headlines_leave_the_others_their_share_of_the_time() -> None:
    """Seventeen minutes of notebook 02 went to its headlines, and 19 of 28 comparisons had no round at all."""
    headline, others = state(20, noise=0.08, headline=True), [state(0), state(0)]
    assert choose([headline, *others], 1e6) in (1, 2)
    begun = [state(8, noise=0.08, headline=True), state(12, noise=0.08), state(0)]
    assert choose(begun, 1e6) == 0, "the others have had three fifths of the time"
    assert choose([headline, state(6, noise=0.08)], 1e6) == 0, "all of them have an interval"
    assert choose([state(4, headline=True), state(20, headline=True), state(0)], 1e6) == 0, "a headline has none yet"


def test_the_noise_comes_as_soon_as_the_headlines() -> None:
    """After 77 rounds of its headline notebook 02 still did not know what two runs of one cell differ by, without which
    no difference is one: its pair of equal cells had four rounds."""
    headline, plain = state(20, noise=0.08, headline=True), state(0, seconds=1.0)
    noise = Progress(Comparison((2, 3)), [0.01] * 4, [10.0] * 4, again=True)
    assert choose([headline, plain, noise], 1e6) == 2
    assert choose([state(0, headline=True), noise], 1e6) == 1, "four rounds of five are the sooner done"
    noise.logs += [0.02]
    assert choose([headline, plain, noise], 1e6) != 2, "five are an interval"


def test_what_lacks_an_interval_is_ranked_by_how_soon_it_has_one() -> None:
    quick, slow = state(4, noise=0.5, seconds=10.0), state(0, noise=0.02, seconds=10.0)
    assert quick.seconds_left() > slow.seconds_left() and choose([quick, slow], 1e6) == 0
    assert Progress(Comparison((0, 1))).seconds_until_known(usual=3.0) == 15.0
    assert Progress(Comparison((0,), rounds=20)).seconds_until_known(usual=3.0) == 15.0
    assert Progress(Comparison((0,), rounds=2)).seconds_until_known(usual=3.0) == 6.0
    assert Progress(Comparison((0,), rounds=20), [0.0] * 6).seconds_until_known(usual=3.0) == 3.0


def test_no_cell_gets_all_its_seeds_while_others_lack_an_interval() -> None:
    """Seen: with too little time left for twelve seeds of each cell, one got twelve, and seven kept three or four."""
    states = [Progress(Comparison((0,), rounds=12), [0.0] * 4, [22.0] * 4) for _ in range(8)]
    states[0].logs.append(0.0)
    left, chosen = 12 * 22.0, None
    while (chosen := choose(states, left, chosen)) is not None:
        states[chosen].logs.append(0.0)
        left -= 22.0
    assert sorted(state.rounds for state in states) == [5] * 3 + [6] * 5


def test_the_cell_with_the_fewest_seeds_is_trained_until_it_has_as_many_as_others() -> None:
    """Every second seed went to a cell that had eleven, for the one with five had just been trained."""
    few, many = (Progress(Comparison((0,), rounds=12), [0.0] * had, [22.0] * had) for had in (5, 11))
    assert choose([few, many], 1e6, last=0) == 0
    assert choose([few, few], 1e6, last=0) == 1


def test_what_was_begun_is_finished_before_the_next_is_begun() -> None:
    """Ten minutes for thirty comparisons settle some of them, and do not measure each of them once."""
    states = [state(2, seconds=10.0), state(1, seconds=10.0), *[state(0) for _ in range(28)]]
    assert choose(states, 600.0, last=None) == 0 and choose(states, 600.0, last=0) == 1


def test_time_goes_where_it_can_still_decide() -> None:
    """A headline out of reach in the time left waits for one that is within reach."""
    far, near = state(6, noise=0.5, headline=True), state(6, noise=0.04)
    assert choose([far, near], 300.0) == 1
    assert choose([far, state(40)], 300.0) == 0, "nothing else is open: what is left goes there after all"


def test_the_same_one_is_not_measured_twice_on_end_while_its_like_waits() -> None:
    states = [state(2, seconds=5.0), state(2, seconds=6.0)]
    assert choose(states, 1e6, last=0) == 1
    assert choose(states[:1], 1e6, last=0) == 0


def test_no_round_is_begun_that_does_not_fit() -> None:
    assert choose([state(2, seconds=50.0)], 49.0) is None
    assert choose([state(2, seconds=50.0)], 51.0) == 0
    assert choose([state(0)], 1.0) == 0, "how long the first one takes nobody knows"
    assert choose([state(0)], 0.0) is None


def test_a_first_round_that_should_not_fit_is_not_begun_and_that_is_said() -> None:
    unknown, known = Progress(Comparison((0,), True, rounds=1), first_seconds=50.0), state(2, seconds=5.0)
    assert choose([unknown, known], 49.0) == 1 and choose([unknown, known], 51.0) == 0
    told = "1 were not begun, with 0.5 minutes left: a first round should take 0.8 minutes or more"
    assert not_begun([unknown, known], 30.0) == told
    assert not_begun([unknown, known], 51.0) == not_begun([known], 1.0) == ""


def test_few_noisy_rounds_are_not_hopeless_but_many_are() -> None:
    """Five rounds may be noisier by half than what they are drawn from; forty are not."""
    few, many = state(MIN_ROUNDS, noise=1.0, seconds=60.0), state(40, noise=1.0, seconds=60.0)
    assert few.seconds_left() > DAY_SECONDS and not few.hopeless and choose([few], 1e6) == 0
    assert many.seconds_left() > DAY_SECONDS and many.hopeless


def test_a_hopeless_one_gets_a_second_look_and_then_what_it_needs() -> None:
    """Its first five rounds differed by a factor of twenty, and it was left out for good; all others are quiet."""
    rng = np.random.default_rng(0)
    bad = Progress(Comparison((0, 1), headline=True), [1.5, -1.5, 1.5, -1.5, 1.5], [60.0] * 5)
    other = Progress(Comparison((2, 3), rounds=1000), [0.0] * 20, [50.0] * 20)
    assert bad.hopeless and choose([bad, other], 40_000.0) == 0, "1000 s were spent on the other"
    left, looks = 40_000.0, 0
    while bad.hopeless and (chosen := choose([bad, other], left)) is not None:
        state, took = ((bad, 60.0), (other, 50.0))[chosen]
        state.logs.append(0.01 * rng.standard_normal())
        state.seconds.append(took)
        left, looks = left - took, looks + (chosen == 0)
    assert not bad.hopeless and bad.open, "more rounds say otherwise"
    assert looks * 60.0 <= 0.1 * (40_000.0 - left + 1300.0), "and they took at most a tenth of the time"


def test_another_plan_judges_what_was_hopeless_anew() -> None:
    """The same rounds: ± 5 % of a headline is out of reach, ± 10 % is not."""
    rounds = state(30, noise=0.5, seconds=120.0)
    assert Progress(Comparison((0, 1), headline=True), rounds.logs, rounds.seconds).hopeless
    assert not rounds.hopeless and rounds.open


def test_what_was_disturbed_in_an_earlier_run_is_tried_again() -> None:
    earlier = Progress(Comparison((0, 1)), [], [10.0] * 8)
    assert earlier.open and not earlier.disturbed
    earlier.disturbed_now = 8
    assert earlier.disturbed and choose([earlier], 1e6) is None


def test_while_others_use_the_machine_cells_that_learn_come_first() -> None:
    """Their seeds are not disturbed; every round of a pair beside another program's work was measured for nothing."""
    timed, learning = state(2, headline=True), Progress(Comparison((2,), rounds=5), [], [40.0], learns=True)
    assert choose([timed, learning], 1e6, last=0) == 0
    timed.just_disturbed = True
    assert choose([timed, learning], 1e6, last=0) == 1
    assert choose([timed, state(2)], 1e6, last=0) in (0, 1), "nothing learns"
    learning.just_disturbed = True
    assert choose([timed, learning], 1e6, last=1) == 1, "and so on, until the machine is quiet"
    learning.just_disturbed = False
    assert choose([timed, learning], 1e6, last=1) == 0


def test_what_would_take_more_than_a_day_is_hopeless_and_said() -> None:
    never = state(MIN_ROUNDS + 1, noise=3.0, seconds=60.0)
    assert never.hopeless and choose([never], 1e6) is None
    assert "1 would take more than a day" in outlook([never, state(40)])
    assert outlook([state(40)]) == "1 of 1 comparisons settled"


def test_a_cell_that_fails_twice_is_given_up() -> None:
    broken = state(0)
    broken.failures = 2
    assert choose([broken], 1e6) is None


def test_seeds_are_counted() -> None:
    learning = Progress(Comparison((0,), rounds=20), [0.0] * 19, [30.0] * 19)
    assert learning.rounds_left == 1 and not learning.settled
    learning.logs.append(0.0)
    assert learning.settled


def test_the_shortest_round_tells_whether_the_minutes_are_too_few() -> None:
    assert fewest_minutes([state(2, seconds=90.0), state(2, seconds=30.0)]) == pytest.approx(0.5)
    assert fewest_minutes([state(2, seconds=90.0), state(0)]) == 0.0


@pytest.mark.parametrize("minutes", [5.0, 20.0])
def test_a_run_keeps_to_its_time_and_settles_what_it_can(minutes: float) -> None:
    """Three quiet pairs, a noisy one, one that never settles; rounds of 5 to 12 seconds."""
    rng = np.random.default_rng(0)
    noises, costs = [0.02, 0.03, 0.02, 0.15, 3.0], [5.0, 8.0, 12.0, 6.0, 5.0]
    states = [Progress(Comparison((0, 1), headline=index == 1)) for index in range(5)]
    left, last = 60 * minutes, None
    while (chosen := choose(states, left, last)) is not None:
        assert math.isnan(states[chosen].round_seconds) or costs[chosen] <= left
        states[chosen].logs.append(noises[chosen] * rng.standard_normal())
        states[chosen].seconds.append(costs[chosen])
        left, last = left - costs[chosen], chosen
    assert states[1].settled, "the headline, whatever the minutes"
    assert not states[4].settled and (minutes < 20 or all(each.settled for each in states[:4]))
    assert left < max(costs) or all(not state.open for state in states)


def test_a_narrow_pair_goes_on_last_as_long_as_it_holds_one_and_a_day_would_change_that() -> None:
    """Bug: a pair that is narrow got no more time, though the report said how many minutes would decide it."""
    near = Progress(Comparison((0, 1)), [0.01 + log for log in state(40).logs], [10.0] * 40)
    assert near.settled and near.undecided and choose([near], 1000.0) == 0
    assert choose([near, state(2)], 1000.0) == 1, "what is not narrow yet comes first"
    near.again = True
    assert not near.undecided and choose([near], 1000.0) is None, "equal cells are measured for their noise alone"
    far = Progress(Comparison((0, 1)), [0.5 + log for log in state(40).logs], [10.0] * 40)
    assert not far.undecided and choose([far], 1000.0) is None, "it is decided"


def test_sessions_that_differ_are_as_wide_for_the_planner_as_for_the_answers() -> None:
    """Bug: rounds of two sessions that lie ten percent apart were pooled, and the pair was called narrow."""
    logs = [base + 0.01 * sign for base in (0.0, 0.1) for sign in (-1.0, 1.0) * 5]
    pair = Progress(Comparison((0, 1), headline=True), logs, [10.0] * 20, sessions=[0] * 10 + [1] * 10)
    index = pd.MultiIndex.from_arrays([pair.sessions, range(20)], names=["session", "round"])
    assert pair.deviation == pytest.approx(mean_of(pd.Series(logs, index)).deviation) and not pair.settled
    assert pair.deviation > Progress(Comparison((0, 1)), logs, [10.0] * 20).deviation


def test_the_outlook_tells_the_kinds_apart_and_what_was_given_up() -> None:
    """Bug: five cells with all their seeds were told as five settled comparisons, where no pair was narrow."""
    broken = state(2)
    broken.failures = 2
    seeds = Progress(Comparison((0,), rounds=2), [0.0] * 2, [30.0] * 2)
    trace = Progress(Comparison((0,), trace=True))
    said = outlook([state(2), broken, seeds, trace])
    assert said.startswith("1 of 4 comparisons settled (0 of 2 pairs, 1 of 1 cells with seeds, 0 of 1 traces), about ")
    assert said.endswith(", 1 given up, since their cells failed")
