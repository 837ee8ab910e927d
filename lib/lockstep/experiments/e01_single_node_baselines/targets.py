"""What we aim at in notebook 01: one process on one machine."""

from __future__ import annotations

from dataclasses import replace

from lockstep.analysis.one_session import undisturbed_by_speed
from lockstep.analysis.statistics import BASELINE, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import BEST, Reading, Target, compared


def _best_setting(use_case: str, target: float, precision: list[str]) -> Target:
    shared = {"experiment": "ladder", "use_case": use_case, "variant": "a", "device": "cpu"}
    name = f"{use_case}: best setting over the sequential baseline" + (", in bfloat16" if len(precision) == 1 else "")
    read = compared({"strategy": BEST, "precision": precision}, {"strategy": "sequential"}, shared=shared)

    def told(stored: Stored) -> Reading:
        rows, base = (select(stored.records, {**shared, **own}) for own in ({"precision": precision}, BASELINE))
        kinds = undisturbed_by_speed(stored, rows[rows["round"].isin(base["round"])])
        pooled = "; a mean over several machines" if len(kinds) > 1 else ""
        return replace(found := read(stored), reason=f"{found.reason}{pooled}")

    return Target(name, target, told)


def _of_peak(precision: str, strategy: str) -> Target:
    read = compared(
        {"experiment": "profile", "use_case": "ComplexSmall", "strategy": strategy},
        {"experiment": "machine", "strategy": "roof"},
        "flops_per_second",
        {"precision": precision, "device": "cpu"},
    )
    return Target(f"VGG16's convolutions over the measured {precision} matrix peak", 0.45, read)


TARGETS: tuple[Target, ...] = (
    _best_setting("ComplexSmall", 5.0, ["bfloat16"]),
    _best_setting("SimpleBig", 4.0, ["bfloat16", "float32"]),
    _of_peak("bfloat16", "copies"),
    _of_peak("float32", "channels_last"),
    Target(
        "photos decoded per second and core", 350.0, compared({"experiment": "decode", "use_case": "SimpleBig"}, None)
    ),
)
