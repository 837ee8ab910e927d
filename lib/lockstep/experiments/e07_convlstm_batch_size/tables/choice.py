"""Which setting is quoted: candidates beside each other on held-out images, and finalists on the test split."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lockstep.analysis.seeds import CANDIDATES, LEARNING, SELECTED, SETTING, mean_columns, paired_points
from lockstep.analysis.statistics import AnalysisError, Estimate
from lockstep.experiments.e07_convlstm_batch_size.tables.accuracy import extras, seed_accuracy_table, setting_text
from lockstep.experiments.e07_convlstm_batch_size.tables.scores_unseen import without_test_scores
from lockstep.experiments.fixed_batch import PLAIN_BATCH

_SIDE = ["use_case", "data_source", "framework", "strategy", "workers", *SETTING]


def choice_table(records: pd.DataFrame, confusion: pd.DataFrame | None = None) -> pd.DataFrame:
    """Per use case and network the candidate with the highest mean validation accuracy, over their
    `shared_seeds`, and what it comes to on the test split when it is trained on all training images.

    `finalists`: settings that were trained so, in SELECTED. `consistent`: is validation's choice among them: yes, no,
    or why that can't be said. `accuracy`: of validation's choice, mean over seeds (%), NaN where it is no finalist.
    `lead`: points of validation accuracy over the `runner_up`, paired by seed: how decided the choice is.
    `lowest_loss`: which candidate mean validation loss would choose. A candidate that diverged is not chosen.
    """
    records = without_test_scores(records)
    shared = shared_seeds(records)
    candidates, finals = seed_accuracy_table(shared, CANDIDATES), seed_accuracy_table(records, SELECTED, confusion)
    if len(finals):
        finals = finals[finals["selected"]]
    known = candidates[candidates["validation"].notna()] if len(candidates) else candidates
    keys = dict.fromkeys((row["use_case"], row["network"]) for part in (known, finals) for _, row in part.iterrows())
    table = []
    for use_case, network in keys:
        own, final = (_of(part, use_case, network) for part in (known, finals))
        chosen = own.loc[own["validation"].idxmax()] if len(own) else None
        text = "" if chosen is None else setting_text(chosen)
        row: dict[str, Any] = {"use_case": use_case, "network": network, "candidates": len(own), "chosen": text}
        row |= {"validation": float("nan") if chosen is None else chosen["validation"]}
        row |= _decided(shared, own) | {"consistent": _consistent(own, text, final)}
        row |= {"finalists": " | ".join(setting_text(each) for _, each in final.iterrows())}
        quoted = [each for _, each in final.iterrows() if setting_text(each) == text]
        for name in ("accuracy", "accuracy_low", "accuracy_high", "balanced", "auc", "run_low", "run_high", "seeds"):
            row[name] = quoted[0][name] if quoted else float("nan")
        table.append(row)
    return pd.DataFrame(table)


def shared_seeds(records: pd.DataFrame) -> pd.DataFrame:
    """Without the candidates' rows of a last seed that not all candidates of a network were trained with yet: whom the
    time sufficed for one more is not judged by one more. Where some lack more than that, all rows, and so what they
    lack, are left as they are; a seed that failed is one that was trained with, and a candidate that never did anything
    else does not count."""
    ahead = pd.Series(False, index=records.index)
    candidates = records[records["experiment"] == CANDIDATES]
    for _, own in candidates.groupby(["use_case", "data_source", "network"], dropna=False):
        seeds = [set(rows["seed"]) for _, rows in own.groupby(_SIDE, dropna=False) if (rows["status"] == "ok").any()]
        common = set.intersection(*seeds) if seeds else set()
        last = set().union(*seeds) - common
        if len(common) > 1 and len(last) == 1 and max(last) > max(common):
            ahead[own.index] = own["seed"].isin(last)
    return records[~ahead]


def _decided(records: pd.DataFrame, candidates: pd.DataFrame) -> dict[str, Any]:
    """By how much the first candidate leads the second, and which one has the lowest loss."""
    ranks = candidates.sort_values("validation", ascending=False, kind="stable") if len(candidates) else candidates
    losses = candidates["validation_loss"].dropna() if len(candidates) else pd.Series(dtype=float)
    lead = None
    if len(ranks) > 1:
        sides = [{name: ranks.iloc[place][name] for name in _SIDE} | {"experiment": CANDIDATES} for place in (0, 1)]
        try:
            lead = paired_points(records, sides[0], sides[1], "validation_accuracy")
        except AnalysisError:
            lead = None  # no seed has both
    found = {"runner_up": setting_text(ranks.iloc[1]) if len(ranks) > 1 else ""} | mean_columns(lead, "lead")
    return found | {"lowest_loss": setting_text(candidates.loc[losses.idxmin()]) if len(losses) else ""}


def quoted(records: pd.DataFrame, frame: pd.DataFrame | None) -> pd.DataFrame:
    """`frame` (records, or the table `confusion`) without finalists that validation data did not choose, by `records`:
    without any where it chose none of them, or where there is nothing to choose by."""
    if frame is None or frame.empty:
        return pd.DataFrame() if frame is None else frame
    table = choice_table(records)
    table = table[table["consistent"] == "yes"] if len(table) else table
    chosen = {(row["use_case"], row["network"]): row["chosen"] for _, row in table.iterrows()}
    finals = frame[frame["experiment"] == SELECTED]
    others = [
        place for place, row in finals.iterrows() if setting_text(row) != chosen.get((row["use_case"], row["network"]))
    ]
    return frame.drop(index=others)


def beside_plain(records: pd.DataFrame) -> pd.DataFrame:
    """The paper's plain settings beside all finalists, per use case and network: mean test accuracy over seeds (%) with
    its interval, and `points`: over the plain one, paired by seed. `what`: plain, chosen (by validation) or finalist.

    Plain: of LEARNING the cells with nothing but Table 2's batch and epochs, by several workers or by one.
    """
    learnt, finals = (seed_accuracy_table(records, name) for name in (LEARNING, SELECTED))
    choice = choice_table(records)
    chosen = set(zip(choice["use_case"], choice["network"], choice["chosen"], strict=True)) if len(choice) else set()
    table = []
    for final, found in ((False, plain := _plain(learnt)), (True, finals)):
        for _, row in found.iterrows():
            best = (row["use_case"], row["network"], setting_text(row)) in chosen
            what = ("chosen" if best else "finalist") if final else "plain"
            kept = ("use_case", "data_source", "network", "accuracy", "accuracy_low", "accuracy_high", "balanced",
                    "auc", "seeds", "status", "reason")  # fmt: skip
            shown = {"what": what, "setting": setting_text(row)} | {name: row[name] for name in kept}
            table.append(shown | mean_columns(_over_plain(records, row, plain) if final else None, "points"))
    order = ["use_case", "network"]
    return pd.DataFrame(table).sort_values(order, kind="stable").reset_index(drop=True) if table else pd.DataFrame()


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """Of every use case and network the row with Table 2's batch, whole epochs, and nothing added."""
    if table.empty:
        return table
    kept = table[(table["global_batch_size"] == PLAIN_BATCH) & (table["updates"] == 0)]
    kept = kept[(kept["framework"] == "torch") & kept["way"].isin(["sequential", "data parallel"])]
    nothing_added = pd.Series([not extras(row) for row in kept.to_dict("records")], index=kept.index, dtype=bool)
    return kept[nothing_added].drop_duplicates(["use_case", "network"])


def _over_plain(records: pd.DataFrame, row: pd.Series, plain: pd.DataFrame) -> Estimate | None:
    """The gain of a finalist over the row of `_plain`; None where no seed has both."""
    base = _of(plain, row["use_case"], row["network"])
    if base.empty:
        return None
    sides = [{name: side[name] for name in _SIDE} for side in (row, base.iloc[0])]
    try:
        return paired_points(records, sides[0] | {"experiment": SELECTED}, sides[1] | {"experiment": LEARNING})
    except AnalysisError:
        return None


def _of(table: pd.DataFrame, use_case: str, network: str) -> pd.DataFrame:
    return table[(table["use_case"] == use_case) & (table["network"] == network)] if len(table) else table


def _consistent(candidates: pd.DataFrame, chosen: str, finals: pd.DataFrame) -> str:
    if candidates.empty:
        return "no candidate was measured"
    if lacking := int((candidates["seeds"] < candidates["seeds"].max()).sum()):
        return f"{lacking} of {len(candidates)} candidates lack seeds that others have"
    if finals.empty:
        return "there is no finalist"
    return "yes" if any(setting_text(row) == chosen for _, row in finals.iterrows()) else "no"
