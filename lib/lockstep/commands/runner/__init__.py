"""The strict notebook runner: everything is checked before anything runs, and nothing is left running after.

Papermill on its own ignores unknown parameters (a warning), takes any type, and leaves a notebook's worker
processes behind when it is killed. Here an unknown name or a wrong type is an error that lists what exists.

`execution` (execute, refresh) is imported where it is used: papermill takes seconds to import, a refusal none.
"""

from lockstep.commands.runner.errors import RunError, RunFailed, Stopped
from lockstep.commands.runner.places import find_notebook, notebooks
from lockstep.commands.runner.plans import RunPlan, plan_runs
from lockstep.experiments.parameters import Parameter, ParameterError, read_parameters

__all__ = [
    "Parameter",
    "ParameterError",
    "RunError",
    "RunFailed",
    "RunPlan",
    "Stopped",
    "find_notebook",
    "notebooks",
    "plan_runs",
    "read_parameters",
]
