"""What DPro-SM's Table 1 and section 4 name and this library does not build, and why."""

from __future__ import annotations

NOT_APPLICABLE: dict[str, tuple[str, str]] = {
    "data encoding": (
        "Karakus et al. 2018, reference 30",
        "it multiplies data and labels by an encoding matrix, which leaves a least-squares problem a "
        "least-squares problem; a mixture of images is no image to a network with activations, and its loss is another "
        "function",
    ),
    "over-complete redundancy": (
        "Karakus et al. 2018, reference 33",
        "the same encoding with more rows than data: it is shown for quadratic losses under (proximal) gradient "
        "descent and L-BFGS; gradient coding carries the idea over to any loss, and is built",
    ),
    "cache pre-forwarding": (
        "Cheng et al. 2020, reference 27",
        "reinforcement learning decides which parameters are sent to a cache before they are asked for; every "
        "step of data parallelism reads all parameters, just after they have changed, so that there is nothing to "
        "guess",
    ),
    "grid graph": (
        "Bin Khunayn et al. 2017, reference 31",
        "it cuts a simulated space so that neighbours exchange little and those are served first who are waited "
        "for; data parallel workers have no neighbours: each one depends on the sum of all",
    ),
    "Hone (tuple scheduling)": (
        "Li et al. 2021, reference 32",
        "it serves the longest of the queues that a stream fills faster or slower; here a worker has one task at "
        "a time and no queue, and the server's messages are answered by one update together",
    ),
    "collaborative learning (ADMM)": (
        "Deshmukh et al. 2021, reference 34",
        "ADMM trains a straggler predictor where logs may not be brought together; the server of this library "
        "sees all completion times by itself. Predictors are `lockstep.engine.forecasts`, and any policy may use "
        "them",
    ),
    "virtualised resources": (
        "Garraghan et al. 2016, reference 35",
        "an analysis of why stragglers occur in a data centre, and more resources for virtual machines at run "
        "time; a library that trains on given machines can't give them more. Its node ranking is in blacklisting",
    ),
    "SAMR": (
        "Chen et al. 2010, in the review of reference 36",
        "LATE with weights, learned from earlier jobs, for the stages of a map and a reduce task; a gradient has "
        "one stage, whose progress is its micro-batches, and with one stage SAMR is LATE, which is built",
    ),
    "Falcon": (
        "Zhou et al. 2021, reference 38",
        "it changes the number of threads of each worker while training, and moves blocked tasks from stragglers "
        "to pioneers; workers here have a core each, so there are no threads to shift. Moving work is `pulling` "
        "and `reassign`",
    ),
    "dynamic backup workers": (
        "Xiong et al. 2021, reference 23",
        "workers without a server agree with their neighbours how many of these to wait for; with a server its "
        "idea, a number of backups that changes while training, is `adaptive_k`",
    ),
}
"""By method: (reference, because). References are DPro-SM's numbers."""
