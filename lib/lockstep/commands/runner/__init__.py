"""The strict notebook runner: everything is checked before anything runs, and nothing is left running after.

Papermill on its own ignores unknown parameters (a warning), takes any type, and leaves a notebook's worker
processes behind when it is killed. Here an unknown name or a wrong type is an error that lists what exists.

Each part is imported from its own file where it is used: every command knows `errors`, whereas `plans` must know all
jobs, and `execution` papermill, which takes seconds.
"""
