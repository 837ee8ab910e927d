"""The soak: random faults, one after the other, in short runs of notebooks 02 to 07. `make soak`, or:

    python -m tests.soak --trials 200 --minutes 30 --seed 1 --only 05

    notebooks   what runs: a few cells of each notebook's own grid, in seconds
    roles       whom to hit: each process of a run, by its command
    faults      what to do to it and when, drawn by seed and number
    phases      what a run is doing just then
    trial       one run that is hit, and how it ended
    recorded    what its records and its messages must be
    leftovers   what must not be there any more

None of it belongs to `make test`; `test_soak.py` tests what needs no run, and `test_trial.py` how one is judged.
"""
