"""A policy says whose contributions make up the next update, what each worker computes next, and who is called off.

It receives events and answers with decisions. It sends nothing, computes no gradient and never reads a clock: the
caller passes the time. So the same object decides for a real server and in a simulation.

    server or simulator                                   policy
       | -- begin(now) ---------------------------------->  |
       | <- Decision(release=((0, work), (1, work), ...)) - |   all get parameters, and places of the sequence
       | -- on(Arrived(worker 1, 32 samples), now) ------>  |
       | <- Decision() ------------------------------------ |   wait
       | -- on(Arrived(worker 0, 32 samples), now) ------>  |
       | <- Decision(apply=..., recall=(2,), release=...) - |   one update of two; worker 2 is called off
       | -- woke(now), when wake_at() has come ---------->  |

**Work** are places of the sample sequence. The sequence is a function of (seed, epoch, global batch) alone
(`lockstep.engine.data.sampling`): a policy decides who takes how much of it, never what it holds.

**Weights.** A contribution is the *mean* gradient over its samples. `Use.weight` multiplies it, and the weights of an
update are samples / samples of the update, so that every sample of an update counts the same, unless the policy's
source weighs otherwise (a late gradient, a decoding vector).

**Recall.** A worker that is called off stops after the micro-batch that it computes, or at once while a delay holds it.
Nothing of that task counts, and all of its samples go back to the pool. A contribution that has crossed the recall on
its way is discarded.

What travels here is a named tuple: a simulation makes a hundred thousand of them in a second.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

from lockstep.engine.declared import DeclaredPolicy
from lockstep.engine.option_text import NoOptions
from lockstep.engine.options import JobError, options_of

Ranges = tuple[tuple[int, int], ...]
"""Places of the sample sequence, as (first, samples) each."""


class Work(NamedTuple):
    """What a worker does until it contributes again.

    `deadline_seconds` counts from the moment at which the worker has received it: afterwards it begins no further
    micro-batch and contributes what it has. With `micro_batch_seconds`, a forecast, it begins none either that would
    end too late.
    """

    ranges: Ranges  # places of the sample sequence
    samples: int  # of all ranges
    micro_batch: int  # samples that are computed at once; between two of them a worker listens
    deadline_seconds: float | None = None
    micro_batch_seconds: float = 0.0
    parts: tuple[tuple[int, float], ...] = ()
    """Coded work: (part, coefficient). The ranges are then those of the whole batch, which is divided into as many
    parts as there are workers, and the worker sends the sum of coefficient x mean gradient of the part."""
    local_steps: bool = False
    """Each micro-batch is a step of the worker's own, and it sends (parameters before - after) / learning rate."""


class Contribution(NamedTuple):
    """What a worker has sent, beside the numbers themselves. `began` and `ended` are of the worker's own clock."""

    worker: int
    task: int  # of this worker: 0, 1, 2 ...
    version: int  # updates that its parameters had seen
    samples: int  # that it holds; at most those of the work
    began: float
    ended: float
    loss: float = float("nan")
    square_norm: float = float("nan")  # of the mean gradient
    system: Mapping[str, float] | None = None  # what its node showed of its state as the task ended: `Delays.readings`


class Arrived(NamedTuple):
    """A contribution is there."""

    contribution: Contribution


class Progressed(NamedTuple):
    """A worker has computed `samples` of its task in `seconds` so far, and goes on."""

    worker: int
    task: int
    samples: int
    seconds: float


class Left(NamedTuple):
    """A worker won't come back. No server says so today: a rank that dies ends its team, and one that a delay holds for
    ever may come again for all anybody knows."""

    worker: int


class Updated(NamedTuple):
    """The last decision's update has been made. Only for policies that need square norms; answered with NOTHING."""

    samples: int
    square_norm: float  # of the weighted sum that was applied


Event = Arrived | Progressed | Left | Updated


class Use(NamedTuple):
    """A waiting contribution of an update, and the factor of its mean gradient."""

    worker: int
    task: int
    weight: float


class GradientStandIn(NamedTuple):
    """A gradient made up for a worker that is missing: `kind` says how, see `lockstep.engine.policies.stand_ins`."""

    worker: int
    kind: str
    weight: float


class Decision(NamedTuple):
    """What the server does now, in this order: drop, recall, one update of apply and stand_in, release, stop."""

    drop: tuple[tuple[int, int], ...] = ()  # (worker, task) whose waiting contribution is discarded
    apply: tuple[Use, ...] = ()
    stand_in: tuple[GradientStandIn, ...] = ()
    release: tuple[tuple[int, Work], ...] = ()  # workers that get the present parameters, and what they do with them
    recall: tuple[int, ...] = ()  # workers that are called off; most are released in the same decision
    stop: bool = False


NOTHING = Decision()


@dataclass(frozen=True)
class Needs:
    """What a server or a simulator must be able to do for a policy; one that can't refuses the policy by name."""

    partial: bool = False  # contributions of fewer samples than the work had
    recall: bool = False
    progress: bool = False  # Progressed events
    single_gradients: bool = False  # the gradients of single workers, where a sum alone would not do
    one_decider: bool = True  # False: several owners of a shard each may decide on their own, and decide the same
    square_norm: bool = False  # of contributions and updates, wherever gradients are computed
    loss: bool = False  # of contributions: it can't decide without
    coded: bool = False  # sums over parts with coefficients
    local_steps: bool = False  # work whose micro-batches are steps on parameters of the worker's own


@dataclass(frozen=True)
class Setting:
    """What a policy is told of the training. Samples are places of the sequence; epochs follow each other in it."""

    workers: int
    samples: int  # of an epoch
    global_batch: int
    micro_batch: int = 0  # 0: a worker's whole share
    standby: int = 0  # of the workers, the last ones: they compute for others only
    seed: int = 0
    truth: Callable[[int, int], float] | None = field(default=None, compare=False)
    """(worker, task) -> seconds per sample that the task will take: for the forecaster that knows the future."""

    def __post_init__(self) -> None:
        for name in ("workers", "samples", "global_batch"):
            if (value := getattr(self, name)) < 1 or value != int(value):
                raise JobError(f"{name}={value!r} is not possible; give a whole number of at least 1")
        if not 0 <= self.standby < self.workers:
            raise JobError(f"standby={self.standby} of {self.workers} workers leaves nobody to train; give fewer")
        if self.micro_batch < 0:
            raise JobError(f"micro_batch={self.micro_batch} is not possible; give 0 for a whole share, or more")
        if self.micro_batch > self.global_batch:
            raise JobError(
                f"micro_batch={self.micro_batch} is more than the global batch of {self.global_batch} images; give less"
            )

    @property
    def training(self) -> int:
        """Workers that train, without those that stand by."""
        return self.workers - self.standby


class Policy(DeclaredPolicy, ABC):
    """Decides for a server. A worker has one task at a time; of each task it contributes once, or is recalled.

    No torch, no clock, and no randomness but of `setting.seed`. Each contribution is applied or dropped once; each
    worker that contributed or was recalled is released again, at once or by a later decision, until `stop`.
    """

    Options: ClassVar[type[Any]] = NoOptions  # a frozen dataclass, its fields declared with `options.option`
    needs: ClassVar[Needs] = Needs()
    options: Any = ()  # type: ignore[misc]  # of a job, none are declared; of a policy, an instance of `Options`
    forecast: Any = None  # a `lockstep.engine.forecasts.Forecast`, of policies that have one

    def __init__(self, setting: Setting, options: Any = None) -> None:
        self.setting = setting
        self.options = self.Options() if options is None else options
        for name, one in options_of(self.Options).items():
            one.check(getattr(self.options, name))
        self.check_setting()

    @classmethod
    def fitted(cls, setting: Setting, share_seconds: float) -> Self:
        """With its defaults, and what must fit where it stands beside all others: a worker's share of an update takes
        so many seconds."""
        del share_seconds
        return cls(setting)

    def check_setting(self) -> None:
        """Raises JobError, with the numbers, for options that this number of workers or batch does not allow."""

    @property
    def workers(self) -> int:
        return self.setting.workers

    @property
    def survives_loss(self) -> int:
        """So many of the workers may never come again, and training goes on without anybody saying that they left."""
        return 0

    @abstractmethod
    def begin(self, now: float) -> Decision:
        """Training starts, or goes on after `load`: everybody waits for work. `now` in seconds of a monotonic clock."""

    @abstractmethod
    def on(self, event: Event, now: float) -> Decision:
        """Something has happened. Raises ValueError for a contribution to a task that was never given."""

    def wake_at(self) -> float | None:
        """When to call `woke`, in seconds of the same clock; None: never. It comes before a message of that moment."""
        return None

    def woke(self, now: float) -> Decision:
        """The time of `wake_at` has come."""
        del now
        return NOTHING

    @property
    def stand_in_kinds(self) -> tuple[str, ...]:
        """The kinds of gradients that it may ask to be made up."""
        return ()

    def idle(self, budget_seconds: float) -> None:
        """The caller waits, and has so much time to spare for forecasters that learn."""
        if self.forecast is not None:
            self.forecast.idle(budget_seconds)

    def hear_of_gaps(self, begins_anew: Callable[[int], bool]) -> None:
        """`Delays.begins_anew`, before training starts: across a gap in a trace nothing may be forecast."""
        if self.forecast is not None:
            self.forecast.begins_anew = begins_anew

    def facts(self) -> dict[str, float]:
        """Numbers of the run beside the usual ones, by name: `SimulatedRun.facts`, or the server's table `facts`."""
        return {}

    def state(self) -> dict[str, Any]:
        """What a checkpoint between two updates must keep: numbers, texts, lists and dicts of them."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`; `begin` follows."""
