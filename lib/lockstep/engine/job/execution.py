"""How a step is computed: number formats, where images come from, the workers' environment, the link between hosts."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine import registry
from lockstep.engine.job.what import What
from lockstep.engine.options import JobError, choice, option

_ONLY_WITH_TORCH = ("model_parallel", "precision", "memory_format", "copies", "device")


@dataclass(frozen=True)
class Execution(What):
    """What the same training may be computed with."""

    precision: str = choice("float32", "bfloat16")
    message_bytes: int = option(0, "of rows that exchange and train nothing: how much; 0: as the model has", least=0)
    input: str = choice(
        "jpeg", "memory", "none", help="jpeg: decoded as training goes; memory: decoded before the clock starts"
    )
    environment: str = option("tuned", "environment profile: lockstep.engine.launch.environment.PROFILES")
    optimiser: str = option(
        "fused", "plain: torch's default, a pass over memory for each operation; fused: one pass",
        choices=("plain", "fused"),
    )  # fmt: skip
    memory_format: str = choice(
        "contiguous", "channels_last", help="of images and activations: contiguous (NCHW), channels_last (NHWC)"
    )
    copies: str = choice("kept", "avoided", help="kept: as torch does by default; avoided: see engine.replica.bfloat16")
    link_bits_per_second: float = option(0.0, "rate of the emulated link between hosts; 0: none is emulated", least=0)

    def check(self) -> None:
        super().check()
        if self.copies == "avoided" and self.precision != "bfloat16":
            raise JobError("copies='avoided' has nothing to avoid in float32; give precision='bfloat16'")
        if self.model_parallel != "none":
            self.refuse_changed("copies", why=f"with model_parallel={self.model_parallel!r}: only 'kept' is possible")
        if self.link_bits_per_second:
            self._check_link()
        if self.framework != "torch":
            self._check_framework()

    def _check_link(self) -> None:
        given = f"link_bits_per_second={self.link_bits_per_second!r}"
        if self.hosts == 1:
            raise JobError(f"{given} with hosts=1: no link; give hosts=2")
        if self.declared_launcher is not None and not self.declared_launcher.emulates_links:
            able = [repr(name) for name, each in registry.launchers().items() if each.emulates_links]
            raise JobError(
                f"{given} does nothing with launcher={self.launcher!r}; only {' or '.join(able)} emulates links"
            )

    def _check_framework(self) -> None:
        given = f"framework={self.framework!r}"
        for name in _ONLY_WITH_TORCH:
            self.refuse_changed(name, why=f"with {given}: only {self.options()[name].default!r} is possible")
        if self.declared_sync is not None and self.framework not in self.declared_sync.frameworks:
            raise JobError(f"sync={self.sync!r} with {given}: it trains torch modules; give 'allreduce'")
