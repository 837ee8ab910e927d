"""What each figure of notebook 07 shows, in sentences computed from its records."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.analysis.sentences import Finding, counted, finding, in_words, sentence
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e07_convlstm_batch_size import answers_of_settings, answers_of_time, score_findings
from lockstep.experiments.e07_convlstm_batch_size.answer import changes, largest_batch
from lockstep.experiments.e07_convlstm_batch_size.tables import learning_accuracy
from lockstep.experiments.fixed_batch import PLAIN_BATCH


@finding
def accuracy(stored: Stored) -> str:
    """What a larger batch does to accuracy; then accuracy with Table 2's plain settings, and how well the same networks
    rank images: the threshold may be what accuracy lacks."""
    try:
        most, found = largest_batch(stored)
        falls, rises = sum(points.high < 0 for _, points in found), sum(points.low > 0 for _, points in found)
        cases = counted(len(found), "case")
        fewer, more = (in_words(number) if number else "none" for number in (falls, rises))
        many = f"all {cases}" if falls == len(found) else f"{fewer} of {cases}"
        changed = f"accuracy falls in {many} and rises in {more}"
        said = [f"With batch {most} instead of {PLAIN_BATCH}, at as many epochs, {changed}."]
        said.append(sentence(changes(found, "it")))
    except NotNow:
        said = []
    table = answers_of_settings.required_rows(learning_accuracy(stored), "accuracy with Table 2's plain settings")
    kept = table[(table["global_batch_size"] == PLAIN_BATCH) & (table["updates"] == 0) & table["auc"].notna()]
    kept = kept[(kept["way"] == "data parallel") & (kept["framework"] == "torch") & (kept["rule"] == "constant")]
    parts = [
        f"{row['network'].replace('cnn', 'CNN').replace('convlstm', 'ConvLSTM')}, {row['use_case']}: "
        f"{row['accuracy']:.3g} % [{row['accuracy_low']:.3g}, {row['accuracy_high']:.3g}] and {row['auc']:.3f}"
        for row in kept[kept["accuracy_low"].notna()].to_dict("records")
    ]
    if parts:
        said.append(sentence(f"accuracy and area under the curve with batch {PLAIN_BATCH} are: {'; '.join(parts)}"))
    if not said:
        raise NotNow("", "no network has enough seeds with Table 2's plain settings")
    return " ".join(said)


FINDINGS: Mapping[str, Finding] = {
    "accuracy": accuracy,
    "gap": answers_of_settings.gap,
    "time": answers_of_time.time,
    "candidates": answers_of_settings.candidates,
    "confusion": answers_of_settings.confusion,
    "ablation": answers_of_settings.ablation,
    "heads": answers_of_settings.heads,
    "scores": score_findings.scores,
    "paired": answers_of_settings.paired,
    "frameworks": answers_of_time.frameworks,
    "operators": answers_of_time.operators,
    "prices": answers_of_time.prices,
}
