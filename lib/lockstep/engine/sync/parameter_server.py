"""Workers send gradients, servers sum them, update, and send parameters back.

    worker 0 --- gradient ---> |        |                     ConvLSTM-D-Accel 3, steps 1-4 of the parameter server
    worker 1 --- gradient ---> | server | sum, update         (Single-to-Multi's Figure 1: "each node exchanges MPI
    worker 2 --- gradient ---> |        |                      messages to update the gradient")
    all      <-- parameters -- |        |

The other reading, Algorithm 1, in which workers send weights, is in `lockstep.engine.sync.weight_server`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep.engine import registry
from lockstep.engine.declared import Chain, Equality, Values
from lockstep.engine.options import JobError, Option
from lockstep.engine.sync.base import StepCost, Sync
from lockstep.engine.sync.batch_norm import SYNC_BATCH_NORM
from lockstep.engine.sync.compression import COMPRESSION, DENSITY, check_compression, equality_of_sums
from lockstep.engine.sync.emulation import NO_DELAYS, REAL, check_delays, check_policy, decides_on_work, emulated_costs
from lockstep.engine.sync.private import EXCHANGE_EVERY, equality_of_averages

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.engine.groups import Group
    from lockstep.engine.job import Job
    from lockstep.engine.policies import MakePolicy, Policy
    from lockstep.engine.replica import Replica
    from lockstep.engine.sync.codecs import Codec
    from lockstep.engine.sync.plan import OptimiserFactory, Plan
    from lockstep.engine.sync.shard import GradientShard

POLICY = Option(
    "policy", "none", "whose contributions make up a server's next update", choices=("none", *registry.POLICIES)
)
SERVERS = Option("servers", 0, "ranks without a replica that look after the parameters", least=0, same_on_resume=False)
SHARDS = Option(
    "shards", 1, "ranks that each look after a slice of the parameters: the servers, or the first workers", least=1,
    same_on_resume=False,
)  # fmt: skip
OPT_WEIGHT = Option(
    "opt_weight", "none", "none: workers send gradients; mean, best: they send weights (Algorithm 1), and the server "
    "takes their mean or those of the lowest loss", choices=("none", "mean", "best"),
)  # fmt: skip


POLICY_OPTIONS = Option(
    "policy_options", "", "of the policy, such as k=6, in the order in which `lockstep strategies` lists them"
)
MICRO_BATCH = Option("micro_batch", 0, "images that a worker computes at once; 0: its whole share", least=0)
STANDBY = Option("standby", 0, "of the workers, the last ones, which compute for others only", least=0)
DELAYS = Option("delays", NO_DELAYS, "stragglers that are emulated, such as markov:slow=3", parse=check_delays)
COMPUTE = Option(
    "compute", REAL, "real, or sleep:fixed_seconds=0.01,image_seconds=0.001: a micro-batch takes so long, slept",
    parse=emulated_costs,
)  # fmt: skip


class ParameterServerSync(Sync):
    """`servers`: the last ranks, which have no replica; 0: each of the first `shards` workers owns a slice.

    The owners have the optimizer and its state; the other workers have none. `codec` compresses only gradients.
    """

    does = "workers send gradients (or weights) to servers, which sum them, update, and send the parameters back"
    label = "parameter server"
    preserves = (
        "equal with a policy that takes every worker's gradient, uncompressed; where workers send weights, equal if "
        "their mean is taken in every step (opt_weight='mean', exchange_every=1) with an optimiser that is linear in "
        "the gradient (SGD)"
    )
    options = (
        EXCHANGE_EVERY, COMPRESSION, DENSITY, POLICY, SERVERS, SHARDS, OPT_WEIGHT, POLICY_OPTIONS, MICRO_BATCH,
        STANDBY, DELAYS, COMPUTE, SYNC_BATCH_NORM,
    )  # fmt: skip
    usual = {"policy": "wait_for_all"}
    variants = {
        "parameter_server-1-server": {"servers": 1},
        "parameter_server-2-servers": {"servers": 2, "shards": 2},
        "parameter_server-shards": {"shards": 2},
        "parameter_server-policy-and-delays": {"servers": 1, "delays": "exponential:mean=0.001", "micro_batch": 3},
        "parameter_server-topk-of-all": {"servers": 1, "compression": "topk"},
        "parameter_server-weights": {"opt_weight": "mean"},
        "parameter_server-weights-1-server": {"opt_weight": "mean", "servers": 1},
        "parameter_server-weights-shards": {"opt_weight": "mean", "shards": 2},
        "terngrad-1-server": {"compression": "terngrad", "servers": 1},
        "best-weights-1-server": {"opt_weight": "best", "servers": 1, "exchange_every": 4},
        "mean-weights-shards": {"opt_weight": "mean", "shards": 2, "exchange_every": 4},
        "mean-weights-1-server-epoch": {"opt_weight": "mean", "servers": 1, "exchange_every": 0},
    }

    @classmethod
    def check(cls, values: Values) -> None:
        check_compression(values)
        servers, shards, workers = values["servers"], values["shards"], values["workers"]
        if values["policy"] == "none":
            raise JobError(f"sync='parameter_server' needs a policy; there are: {', '.join(registry.POLICIES)}")
        if decides_on_work(values):
            check_policy(values)
        if servers and shards != servers:
            raise JobError(f"shards={shards} on servers={servers}: each server has one; give shards=servers")
        if not servers and shards > workers:
            raise JobError(f"shards={shards} for {workers} workers and no server: give at most one per worker")
        if values["opt_weight"] == "none" and values["exchange_every"] != 1:
            raise JobError(
                f"exchange_every={values['exchange_every']} with gradients, which are of one step; to exchange weights "
                "after several steps give opt_weight='mean' or 'best'"
            )
        if values["opt_weight"] != "none" and values["compression"] != "none":
            raise JobError(
                f"compression={values['compression']!r} is for gradients; opt_weight={values['opt_weight']!r} sends "
                "weights"
            )

    @classmethod
    def equality(cls, values: Values) -> Equality:
        policy = registry.policy_named(values["policy"])
        if policy is None or not policy.takes_all:
            return Equality("no", f"policy={values['policy']!r} does not take every worker's contribution")
        if values["opt_weight"] == "none":
            return equality_of_sums(values, "every update takes the sum of all gradients")
        if values["opt_weight"] == "best" and values["workers"] > 1:
            return Equality("no", "the weights of one worker go on, and those of the others are dropped")
        return equality_of_averages(values)

    @classmethod
    def averages_parameters(cls, values: Values) -> bool:
        return bool(values["opt_weight"] != "none")

    @classmethod
    def chain(cls, values: Values, parties: int, message_bytes: float) -> Chain | None:
        """The owner's link carries everything that the workers send, and then everything that it sends back."""
        if values["compression"] != "none":
            return None
        others = values["workers"] if values["servers"] else values["workers"] - 1  # an owner does not send to itself
        return Chain(2, 2 * others / values["shards"] * message_bytes)

    @classmethod
    def of(cls, job: Job, plan: Plan, optimiser: OptimiserFactory) -> Sync:
        from lockstep.engine.delays import make_delays
        from lockstep.engine.policies import make_policy
        from lockstep.engine.sync.codecs import codec_of
        from lockstep.engine.sync.weight_server import WeightServerSync

        policy = make_policy(job)
        if decides_on_work(job.values):
            from lockstep.engine.sync.policy_worker import PolicySync

            return PolicySync(
                plan, optimiser, policy, lambda workers: make_delays(job.delays, workers, job.seed),
                emulated_costs(job.values["compute"]), job.values["standby"],
            )  # fmt: skip
        if job.opt_weight != "none":
            return WeightServerSync(
                plan, optimiser, policy, job.servers, job.shards, job.opt_weight, job.exchange_every
            )
        return cls(plan, optimiser, policy, job.servers, job.shards, codec_of(job))

    def __init__(
        self,
        plan: Plan,
        optimiser: OptimiserFactory,
        policy: MakePolicy | None = None,
        servers: int = 0,
        shards: int = 1,
        codec: Codec | None = None,
    ) -> None:
        from lockstep.engine.policies import WaitForAll

        super().__init__(plan, optimiser)
        policy = WaitForAll if policy is None else policy
        self.policy, self.servers, self.shards, self.codec = policy, servers, shards, codec

    def attach(self, replica: Replica, group: Group) -> None:
        from lockstep.engine.sync.client import Client

        self._check_all_common(replica)
        self.client = Client(group, self.servers, self.shards)
        self.replica, self.group = replica, self.client.workers
        self.group.broadcast(replica.parameters)
        if replica.buffers.numel():
            self.group.broadcast(replica.buffers)
        self.gradients = replica.parameters.new_zeros(replica.length)
        replica.rebind(gradients=self.gradients)
        replica.clear_gradients()
        if self.codec is not None:
            self.codec.attach(replica.length, self.group.rank)
        self.client.start(replica.parameters, self._shard, self._policy_for)

    def attach_server(self, group: Group) -> None:
        from lockstep.engine.sync.client import serve_from

        self.group, self.owner = serve_from(group, self._shard, self._policy_for, self.servers)

    def _policy_for(self, workers: int) -> Policy:
        return self.policy(self.plan.setting(workers))

    def _shard(self, parameters: Tensor) -> GradientShard:
        from lockstep.engine.sync.shard import GradientShard

        return GradientShard(parameters, self.make_optimiser, self.codec)

    def step(self) -> StepCost:
        cost = self.client.exchange(self._message, self.done + 1)
        self.replica.clear_gradients()
        self.done += 1
        return cost

    def _message(self, place: slice) -> Tensor:
        gradient = self.gradients[place]
        return gradient if self.codec is None else self.codec.encode(gradient, place.start, self.done)

    def serve(self) -> tuple[int, StepCost] | None:
        cost = self.owner.update()
        return None if cost is None else (self.owner.done - 1, cost)

    def parts_of_state(self) -> dict[str, int]:
        return {**super().parts_of_state(), "shards": self.shards}

    def optimiser_state(self) -> Any:
        return self.client.states()

    def load_optimiser_state(self, state: Any) -> None:
        self.client.load(state)

    def close(self) -> None:
        if hasattr(self, "client"):
            self.client.close()
