"""What the file of a strategy says about the strategy, in a form that other code can read without loading torch.

    options     -> fields of Job, columns of records.csv, the options of `lockstep.train`
    check       -> Job refuses what can't be run
    equality    -> cautions in the records; which of the conformance tests compare with sequential training
    chain       -> the link model and the cost model
    runs_on     -> Job, the conformance tests
    label       -> figures

Every method takes the values of a job by name. A row of records.csv has the same names, so analysis can ask the same
questions about what was measured long ago.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lockstep.engine.options import Option

Values = Mapping[str, Any]
"""The fields of a job, or the identity columns of a row, by name."""


@dataclass(frozen=True)
class Equality:
    """Does a job reach the parameters of sequential training, up to rounding? `why` says when, or why not."""

    kind: str  # exact | linear (with an optimiser that is linear in the gradient, such as SGD) | no
    why: str = ""

    @property
    def equal(self) -> bool:
        return self.kind != "no"

    def __str__(self) -> str:
        start = {"exact": "yes", "linear": "yes, with an optimiser that is linear in the gradient (SGD)", "no": "no"}
        return f"{start[self.kind]}: {self.why}" if self.why else start[self.kind]


@dataclass(frozen=True)
class Chain:
    """The longest chain of an exchange: messages that wait for each other, and the bytes that pass on the way.

    `counted` is False where the number of messages is only an estimate, because libraries differ.
    """

    messages: float
    bytes: float
    counted: bool = True


class Declared:
    """What every strategy says about itself, whatever its kind. Class attributes; nothing here is ever instantiated."""

    does: ClassVar[str] = ""  # one sentence for `lockstep strategies`
    label: ClassVar[str] = ""  # in figures; without it the name itself
    colour: ClassVar[int | None] = None  # place in the palette; None: by its place among the strategies
    marker: ClassVar[str] = ""  # of its points, one of matplotlib's; empty: a disc
    options: ClassVar[tuple[Option, ...]] = ()
    usual: ClassVar[Values] = {}  # fields that a job with this strategy needs, where its options' defaults do not do

    @classmethod
    def check(cls, values: Values) -> None:
        """Raises JobError for options that are allowed one by one but do not go together."""


class DeclaredSync(Declared):
    """How replicas agree: a sync of this library, or a peer that brings its own exchange."""

    preserves: ClassVar[str] = ""  # when training equals sequential training, in words
    frameworks: ClassVar[tuple[str, ...]] = ("torch", "tensorflow")
    launchers: ClassVar[tuple[str, ...]] = ()  # the only ones it runs on; empty: all that have no loop of their own
    needs_processes: ClassVar[bool] = False  # every worker must be a process
    learns: ClassVar[bool] = True  # it can train until something is learnt, with the options of that
    alone: ClassVar[bool] = False  # it makes nobody agree: one replica, whatever its ranks
    between_replicas: ClassVar[bool] = False  # it can agree several replicas of a pipeline
    sums_common_part: ClassVar[bool] = False  # it can agree replicas that hold different parts of a model
    hosts_of_threads: ClassVar[bool] = False  # it can agree workers that are threads of one process per host
    one_copy_per_host: ClassVar[bool] = False  # parameters and optimizer state stand once on a host, for all its ranks
    meets: ClassVar[bool] = False  # all ranks meet at a barrier before the exchange, whose time is then `wait_seconds`
    variants: ClassVar[Mapping[str, Values]] = {}  # options that the conformance tests try, beside the usual ones

    @classmethod
    def equality(cls, values: Values) -> Equality:
        """Does this job reach the parameters of sequential training? Whoever does not say so is taken to differ."""
        del values
        return Equality("no", "its file does not say that it does")

    @classmethod
    def averages_parameters(cls, values: Values) -> bool:
        """Does every worker step on parameters of its own, which are averaged now and then?"""
        del values
        return False

    @classmethod
    def chain(cls, values: Values, parties: int, message_bytes: float) -> Chain | None:
        """The longest chain of one exchange of `message_bytes` between `parties` of at least 2; None where unknown.

        The parties are the hosts where a job has several, for what ranks of one host tell each other does not pass
        the link between hosts; otherwise the workers.
        """
        del values, parties, message_bytes
        return None

    @classmethod
    def runs_on(cls, name: str, launcher: type[DeclaredLauncher]) -> bool:
        """Can it run where `launcher`, whose name is `name`, starts workers?"""
        if cls.launchers:
            return name in cls.launchers
        return not launcher.owns_loop and (launcher.process_per_worker or not cls.needs_processes)


class DeclaredPolicy(Declared):
    """Which contributions make up a server's next update."""

    takes_all: ClassVar[bool] = False  # every update takes one contribution of every worker, made from the same version
    updates_by_one: ClassVar[bool] = False  # every contribution is an update: of a share, not of the global batch


class DeclaredLauncher(Declared):
    """Where workers run."""

    one_host: ClassVar[bool] = False  # all workers run on this machine
    mpi: ClassVar[bool] = False  # the workers are ranks of an MPI job
    spark: ClassVar[bool] = False  # the workers are tasks of a Spark cluster, whose hosts are the cluster's own
    process_per_worker: ClassVar[bool] = True
    owns_loop: ClassVar[bool] = False  # for peers whose driver owns the training loop
    emulates_links: ClassVar[bool] = False
    simulated: ClassVar[bool] = False  # no worker runs: time is computed
    hosts_of_threads: ClassVar[bool] = False  # it can start one process per host, with a thread for each worker


def doubling(parties: int, message_bytes: float) -> Chain:
    """An all-reduce as libraries do it: reduce-scatter by halving, all-gather by doubling (Thakur et al. 2005).

    Parties that are not a power of two are folded into one first, in ways of each library's own: then the number of
    messages is an estimate.
    """
    rounds = (parties - 1).bit_length()
    counted = parties == 1 << rounds
    return Chain(2 * rounds, 2 * (parties - 1) / parties * message_bytes, counted)


def usual_values(sync: type[DeclaredSync]) -> dict[str, Any]:
    """What the options of a sync hold in its plainest job."""
    return {option.name: option.default for option in sync.options} | dict(sync.usual)
