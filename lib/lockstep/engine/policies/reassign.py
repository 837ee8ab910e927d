"""Shares that follow the workers' speed, so that all end together.

- FlexRR: Harlap et al. 2016, "Addressing the straggler problem for iterative convergent parallel ML" (references 19 and
  29 of DPro-SM): workers that are ahead take over work of those behind. It moves work within a step, on messages
  between workers; a server does the like from step to step, with the last value as its forecast, and within a step by
  `pulling`.
- LB-BSP: Chen et al. 2020, "Semi-dynamic load balancing: efficient distributed learning in non-dedicated environments":
  batch sizes of the next step follow the speed that is forecast.
- S2C2: Narra et al. 2019, "Slack squeeze coded computing for adaptive straggler mitigation" (reference 37): work
  follows speeds that an LSTM forecasts. Its code for matrix products is none for gradients; the idea is this policy
  with `forecast=lstm`.

A "task" of MapReduce is one worker's share of an update. Nobody is recalled.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine.policies.forecasting import ForecastPolicy, forecast_option, shares_by_speed
from lockstep.engine.policies.rounds import Whole


@dataclass(frozen=True)
class ReassignOptions:
    forecast: str = forecast_option("last")


class Reassign(ForecastPolicy):
    """Every sample of an update weighs the same, whoever computed it, so that updates are those of even shares."""

    does = "shares of the next update follow the speed that is forecast; a server waits for all"
    label = "reassignment"
    Options = ReassignOptions

    def sizes(self, samples: int, present: Whole) -> Whole:
        return shares_by_speed(samples, self.predicted()[present])
