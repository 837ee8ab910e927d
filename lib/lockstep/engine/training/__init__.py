"""Training one job: the loop, its rates and epochs, evaluation, scores and checkpoints."""
