"""Findings: the sentence or two that a figure shows, computed from what is stored.

A finding states a number with its 95 % interval, or that no difference can be shown, or what is missing. It never says
more than its interval does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import pandas as pd

from lockstep.analysis.confidence import MIN_ROUNDS, AnalysisError, Estimate
from lockstep.analysis.figures.messages import NETWORKS
from lockstep.analysis.figures.style import label
from lockstep.analysis.statistics import interval_of, is_difference
from lockstep.analysis.stored import Stored, once
from lockstep.analysis.verdicts import TOLERANCE, NotNow
from lockstep.engine.units import digits

Finding = Callable[[Stored], str]

WIDE = 1.5
"""An interval from one end to the other by more than this factor leaves a comparison open: it is not one of equals."""
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def network_name(use_case: str) -> str:
    """What a sentence calls the network of a use case."""
    return NETWORKS.get(use_case, f"the network of {use_case}")


def way_name(strategy: str) -> str:
    """What a sentence calls a strategy: its label in figures, without the comma that a list would take for its own."""
    name, _, detail = label(strategy).partition(", ")
    return f"{name} ({detail})" if detail else name


def in_words(number: int) -> str:
    """No, one, two ... ten, 11."""
    return _NUMBERS[number] if 0 <= number < len(_NUMBERS) else str(number)


def counted(number: int, noun: str) -> str:
    """A number and its noun, singular or plural; in words up to ten: one process, two processes, 16 cores."""
    word = in_words(number)
    many = noun + ("es" if noun.endswith(("process", "batch")) else "s")
    return f"{word} {noun if number == 1 else many}"


def listed(parts: Iterable[str]) -> str:
    """Parts of a sentence as a list: a; a and b; a, b, and c."""
    found = list(parts)
    return " and ".join(found) if len(found) < 3 else f"{', '.join(found[:-1])}, and {found[-1]}"


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """A noun and its numbers, ascending: session 4; sessions 0-3; sessions 0, 2."""
    on_end = numbers[-1] - numbers[0] == len(numbers) - 1 > 0
    told = f"{numbers[0]}-{numbers[-1]}" if on_end else ", ".join(map(str, numbers))
    return f"{noun if len(numbers) == 1 else noun + 's'} {told}"


def sentence(text: str) -> str:
    """`text` with a capital at its beginning and a period at its end."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def times(ratio: Estimate, what: str = "") -> str:
    """A ratio, of what, and its interval: 1.92 times as fast as one core [1.77, 2.37]; where it is 1, as fast as one
    core [0.98, 1.02]."""
    number = f"{digits(ratio.value)} times"
    alike = number == "1 times" and what.startswith(("as fast", "as long", "as many"))
    return " ".join(part for part in ("" if alike else number, what, interval_text(ratio)) if part)


def processor_name(processor: str) -> str:
    """A processor as a sentence calls it: Intel Xeon."""
    return " ".join(re.sub(r"\((R|TM)\)|\b(CPU|Processor)\b", " ", processor).split())


def measure_of(ratio: Estimate, unit: str) -> str:
    """A measured quantity with its interval and unit: 94.1 % [93.8, 94.6]."""
    return f"{digits(ratio.value)} {unit} {interval_text(ratio)}"


def as_share(share: Estimate, whole: float = 100.0) -> Estimate:
    """A share, in percent unless told otherwise, whose interval ends at nothing and at the whole, as the share does.
    For text only: verdicts and targets derive a round's deviation from the interval as it was."""
    if share.open:
        return share
    value, low, high = (min(whole, max(0.0, each)) for each in (share.value, share.low, share.high))
    apart = tuple((name, as_share(own, whole)) for name, own in share.apart)
    return replace(share, value=value, low=low, high=high, apart=apart)


def briefly(text: str) -> str:
    """A text without what each session says by itself; it still says that they differ."""
    return re.sub(r" \(sessions differ: [^()]*\)", " (sessions differ)", text)


def with_lists(text: str) -> str:
    """A finding as Markdown: where a sentence announces three things or more by a colon and parts them by semicolons,
    each has a line; all other sentences stay as they are."""
    told = ""
    for each in _parts(text, ". "):
        intro, *rest = _parts(_parts(each, "; ")[0], ": ")
        items = [": ".join(rest), *_parts(each.removesuffix("."), "; ")[1:]]
        if rest and len(items) > 2:
            told += "\n\n" + "\n".join([f"{intro}:", "", *(f"- {item}" for item in items)]) + "\n\n"
        else:
            told += f"{each.removesuffix('.')}. "
    return told.strip().replace(" \n", "\n").replace("\n\n\n\n", "\n\n")


def _parts(text: str, mark: str) -> list[str]:
    """A text that is cut at every `mark` outside parentheses, and at the end of sentences only before a beginning."""
    found: list[str] = []
    for part in text.split(mark):
        if found and (found[-1].count("(") > found[-1].count(")") or (mark == ". " and part[:1].islower())):
            found[-1] += mark + part
        else:
            found.append(part)
    return found


def interval_text(ratio: Estimate) -> str:
    """The interval alone, where the number already stands; says so where there is none yet."""
    return f"{ratio.interval}{ratio.differing}"


def estimate_in(row: Mapping[str, Any], name: str, low: str = "low", high: str = "high") -> Estimate:
    """The estimate that a row of a table holds in its columns, open where there is no interval. Raises NotNow for a row
    without the number."""
    if math.isnan(row[name]):
        raise NotNow("", str(row.get("reason") or "") or "it was not measured")
    ends = (0.0, math.inf) if math.isnan(row[low]) else (row[low], row[high])
    return Estimate(row[name], ends[0], ends[1], int(row["rounds"]))


def faster(ratio: Estimate, noise: float, subject: str, rival: str, sessions: str = "") -> str:
    """Whether `subject` or `rival` is faster, by the ratio of their images per second; never more than the interval and
    the noise of the A/A pairs allow.

    `subject` and `rival` are plural; `sessions` stands behind the interval. Raises NotNow for too few rounds.
    """
    require_rounds(ratio)
    if ratio.low <= 1 <= ratio.high:
        if ratio.high > WIDE * ratio.low:
            ends = f"between {ratio.low:.3g} and {ratio.high:.3g} times as fast{ratio.differing}"
            ends = ends if ratio.interval.startswith("[") else times(ratio, "as fast")
            return f"whether {subject} or {rival} are faster is open, {ends}{sessions}"
        return f"{subject} and {rival} cannot be told apart ({times(ratio, 'as fast')}{sessions})"
    if not is_difference(ratio, noise):
        within = ", which is within the noise of two equal runs"
        if math.isinf(noise):
            within = ", but whether that exceeds the noise of two equal runs is still open"
        return f"{subject} ran at {times(ratio, f'the speed of {rival}')}{sessions}{within}"
    if ratio.value > 1:
        return f"{subject} are {times(ratio, f'as fast as {rival}')}{sessions}"
    return f"{subject} are slower than {rival}, {times(ratio, 'as fast')}{sessions}"


def pays(ratio: Estimate, noise: float) -> int:
    """1 where a ratio of speeds is a gain beyond its interval and the noise of the A/A pairs, -1 where its interval
    allows no gain of TOLERANCE or more, 0 where it is open: as a claim of the ledger on such a ratio is answered."""
    if is_difference(ratio, noise) and ratio.value > 1:
        return 1
    return -1 if ratio.rounds >= MIN_ROUNDS and ratio.high <= 1 + TOLERANCE else 0


def noise_unknown(noise: float, so: str = "no way is called faster") -> list[str]:
    """Why nothing is called a difference, where no A/A pair has rounds enough; nothing where one has."""
    if math.isfinite(noise):
        return []
    twice = f"none was measured twice in {counted(MIN_ROUNDS, 'round')}"
    return [f"How far two runs of one cell lie apart is not known ({twice}), so {so}."]


def predicted_steps(table: pd.DataFrame, names: Sequence[str], within: float) -> str:
    """How many steps were predicted within a tolerance by their mean, of how many others the whole interval shows that
    they are too long or too short, and the worst prediction.

    `table`: a row per cell with use_case, variant, step_seconds (measured), ratio (predicted over measured) with low
    and high, rounds. `names`: of its rows; what a figure draws once, counts once. Raises NotNow for no prediction.
    """
    shown = table.assign(called=list(names))
    if len(shown):
        ran = shown["step_seconds"].notna() & (shown["variant"] == "a")
        shown = shown[ran].drop_duplicates(["use_case", "called"])
    known = shown[shown["ratio"].notna()] if len(shown) else shown
    if known.empty:
        raise NotNow("", "no step was both measured and predicted")
    worst = known.loc[known["ratio"].map(math.log).abs().idxmax()].to_dict()  # half as long errs as much as twice
    off, lacking = known[(known["ratio"] - 1).abs() > within], len(shown) - len(known)
    sides = {"long": int((off["low"] > 1 + within).sum()), "short": int((off["high"] < 1 - within).sum())}
    told = [f"{_so_many_are(count)} shown to be too {side}" for side, count in sides.items() if count]
    lost = int(off["low"].isna().sum())
    left = len(off) - lost - sum(sides.values())
    told += [f"{_so_many_are(left)} left open by {'its interval' if left == 1 else 'their intervals'}"] if left else []
    told += [f"{in_words(lost)} {'has' if lost == 1 else 'have'} no interval yet"] if lost else []
    right = f"{100 * within:g} % of the measured step in {len(known) - len(off)} of {len(known)} cells"
    others = f"; of the others, {listed(told)}" if told else ""
    more = f"; {counted(lacking, 'more cell')} could not be predicted" if lacking else ""
    return " ".join([
        sentence(f"by their mean, predictions lie within {right}{others}{more}"),
        sentence(f"the worst is {times(estimate_in(worst, 'ratio'), 'the measured step')}: {worst['called']}"),
    ])  # fmt: skip


def _so_many_are(count: int) -> str:
    return f"{in_words(count)} {'is' if count == 1 else 'are'}"


def resources_used(traces: pd.DataFrame) -> str:
    """CPU, memory and threads of the traced cells (`lockstep.analysis.tables.trace_table`), all ranks together."""
    told = []
    for (use_case, strategy), own in traces.groupby(["use_case", "strategy"], sort=False) if len(traces) else ():
        busy, memory, threads = (
            interval_of(own[name].dropna()) for name in ("cpu_percent_mean", "pss_bytes_peak", "threads_mean")
        )
        used = [measure_of(busy, "% of one core"), measure_of(memory.times(2**-30), "GiB at most")]
        if busy.open:  # said once for all three
            used = [each.removesuffix(" (no interval yet)") for each in used]
        without = ", without an interval" if busy.open else ""
        who = f"training {network_name(str(use_case))} with {way_name(str(strategy))}, all ranks together use"
        many = f"and {threads.value:.3g} threads, in {counted(busy.rounds, 'trace')}{without}"
        told.append(sentence(f"{who} {', '.join(used)}, {many}"))
    return " ".join(told) or "No resources were sampled in these records."


def require_rounds(ratio: Estimate) -> None:
    """Raises NotNow where a ratio rests on fewer rounds than an interval needs."""
    if ratio.rounds < MIN_ROUNDS:
        raise NotNow(
            "", f"{counted(ratio.rounds, 'round')} stored, and an interval needs {counted(MIN_ROUNDS, 'round')}"
        )


def finding(compute: Finding) -> Finding:
    """As a decorator: where the records can't answer, the finding says so, with the reason, in place of an error."""

    told = once(compute)  # the figure's title, its text and the overview say the same

    @wraps(compute)
    def found(stored: Stored) -> str:
        if stored.records.empty:
            return "Nothing is stored yet, so there is nothing to find: measure it first."
        try:
            return told(stored.shown)
        except (NotNow, AnalysisError) as error:
            return sentence(f"These records do not answer this yet: {error}")

    return found


def known_of(asked: Mapping[str, Callable[[], str]]) -> str:
    """What is known of several comparisons as the clauses of one sentence, and the names of those that have too few
    rounds. Raises NotNow where all lack them."""
    said, lacking = [], {}
    for name, say in asked.items():
        try:
            said.append(say())
        except (NotNow, AnalysisError) as error:
            lacking[name] = str(error)
    if not said:
        raise NotNow("", next(iter(lacking.values()), "nothing was measured"))
    return sentence("; ".join([*said, *([f"too few rounds yet for {listed(lacking)}"] if lacking else [])]))


def settle_each(say: Callable[[str], str], names: Iterable[str]) -> list[str]:
    """What `say` says about each name, and the reason where data are missing; a use case is called by its network."""
    found = []
    for name in names:
        try:
            found.append(say(name))
        except (NotNow, AnalysisError) as error:
            found.append(f"{NETWORKS.get(name, name)}: not known yet ({error}).")
    return found
