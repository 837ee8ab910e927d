"""The declarations of the syncs that can compress gradients. The codecs themselves are in `codecs`."""

from __future__ import annotations

from lockstep.engine.declared import Equality, Values
from lockstep.engine.options import JobError, Option

COMPRESSION = Option(
    "compression", "none", "of the gradients that are sent: the largest entries (topk), two bits each (terngrad)",
    choices=("none", "topk", "terngrad"),
)  # fmt: skip
DENSITY = Option("density", 1.0, "share of the gradient's entries that topk sends", above=0, most=1)


def check_compression(values: Values) -> None:
    """Raises JobError for a density that no compression reads."""
    if values["density"] != 1.0 and values["compression"] != "topk":
        raise JobError(
            f"density={values['density']!r} does nothing with compression={values['compression']!r}; give 'topk'"
        )


def equality_of_sums(values: Values, why: str) -> Equality:
    """The equality of a sync that steps with the sum of all gradients: exact unless compression omits entries."""
    if values["compression"] == "none" or (values["compression"] == "topk" and values["density"] == 1.0):
        return Equality("exact", why)
    return Equality("no", f"compression={values['compression']!r} sends less than the gradient")
