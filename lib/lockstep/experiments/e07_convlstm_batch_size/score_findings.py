"""What every image's score says, in sentences and as a target."""

from __future__ import annotations

from lockstep.analysis.confidence import MIN_ROUNDS, Estimate
from lockstep.analysis.image_scores import TEST, VALIDATION
from lockstep.analysis.sentences import finding, listed, measure_of, sentence
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import MISSING, Read, Reading, Target
from lockstep.analysis.verdicts import NOT_YET, NotNow
from lockstep.experiments.e07_convlstm_batch_size.score_cells import SCORES
from lockstep.experiments.e07_convlstm_batch_size.tables.scores import (
    AS_TRAINED,
    CORRECTED,
    OF_VALIDATION,
    SHARED,
    ScoredNetwork,
    best_by_validation,
    class_names,
    lstm_areas,
    patient_table,
)

USE_CASE = "Pneumonia"
LEAST_BALANCED, LEAST_AREA = 88.0, 0.965
_OTHER_IMAGES = "of the synthetic stand-in, which says nothing about the real images"


@finding
def scores(stored: Stored) -> str:
    """How well the network that validation prefers ranks images, what thresholds of validation do to its accuracy, what
    the LSTM does to the area under the curve, and whether shared patient numbers flatter."""
    best = best_by_validation(stored, USE_CASE)
    if best is None:
        raise NotNow("", f"scores of every image need {MIN_ROUNDS} seeds")
    said = [f"validation prefers {best.briefly}: on test images its area under the curve is {_plain(best.area)}"]
    said += [_by_rules(best), *_normal(best)]
    if (more := lstm_areas(stored).get(best.trained)) is not None:
        said.append(f"the ConvLSTM's area minus the CNN's is {_plain(more, '+')}")
    return " ".join(sentence(text) for text in [*said, *_patients(stored, best)])


def _plain(estimate: Estimate, sign: str = "") -> str:
    """Three digits behind the point, which an area needs."""
    return f"{estimate.value:{sign}.3f} [{estimate.low:{sign}.3f}, {estimate.high:{sign}.3f}]"


def _by_rules(network: ScoredNetwork) -> str:
    """Balanced accuracy by each rule."""
    called = {
        AS_TRAINED: "as trained",
        OF_VALIDATION: "with a threshold of held-out images",
        CORRECTED: "corrected for the published class shares",
    }
    parts = [f"{measure_of(network.balanced(rule), '%')} {called[rule]}" for rule in network.rules]
    return f"its balanced accuracy is {listed(parts)}"


def _normal(network: ScoredNetwork) -> list[str]:
    """Whether the splits differ by more than class shares: how often images of class 0 are found in each."""
    held, test = (network.recall(AS_TRAINED, 0, split) for split in (VALIDATION, TEST))
    if test.low <= held.high and held.low <= test.high:
        return []
    name = class_names(str(network.cell["use_case"]))[0]
    return [
        f"it finds {held.value:.3g} % of {name} images held out and {measure_of(test, '%')} of those tested: "
        "the splits differ by more than class shares"
    ]


def _patients(stored: Stored, network: ScoredNetwork) -> list[str]:
    table = patient_table(stored)
    if table.empty:
        return []
    own = table[(table["network"] == network.cell["network"]) & (table["setting"] == network.setting)]
    for row in own[own["patients"] == SHARED].to_dict("records"):
        more = Estimate(row["more"], row["more_low"], row["more_high"], row["rounds"], logarithmic=False)
        name = class_names(str(network.cell["use_case"]))[1]
        return [
            f"between patient numbers shared with training and others, recall of {name} differs by {more.value:+.2f} "
            f"points [{more.low:.2f}, {more.high:.2f}]"
        ]
    return []


def _of_best(measure: str) -> Read:
    """Of the network that validation prefers among those scored: balanced accuracy (%) with the corrected threshold, or
    the area under the curve."""

    def read(stored: Stored) -> Reading:
        network = best_by_validation(stored, USE_CASE)
        if network is None:
            reasons = [text for text in stored.of(SCORES)["reason"].astype(str) if text]
            return Reading(None, NOT_YET, reasons[0] if reasons else MISSING)
        if network.cell["data_source"] != "real":
            return Reading(None, NOT_YET, _OTHER_IMAGES)
        if measure == "area":
            return Reading(network.area, reason=network.briefly)
        others = (f"{rule}: {measure_of(network.balanced(rule), '%')}" for rule in (AS_TRAINED, OF_VALIDATION))
        bound = f"the best threshold, chosen on the test images: {network.at_best:.3g} %"
        return Reading(network.balanced(CORRECTED), reason=f"{network.briefly}; {'; '.join([*others, bound])}")

    return read


SCORE_TARGETS: tuple[Target, ...] = (
    Target(
        f"{USE_CASE}: balanced accuracy, threshold and prior from validation and the source's shares, %",
        LEAST_BALANCED,
        _of_best("balanced"),
    ),
    Target(f"{USE_CASE}: area under the curve of the same network", LEAST_AREA, _of_best("area")),
)
