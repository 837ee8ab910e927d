"""Which forecasters are compared, and on what of their history."""

from __future__ import annotations

from collections.abc import Mapping

FORECASTERS: Mapping[str, str] = {
    "last": "last",
    "mean": "mean",
    "median": "median",
    "smoothing": "smoothing",
    "ar": "ar",
    "linear": "linear",
    "best": "best:of=last+mean+median+smoothing+ar+linear",
    "lstm": "lstm",
    "oracle": "oracle",
}
"""By the name in tables -> what `lockstep.engine.forecasts.make_forecast` makes of it. The best is that of all but the
LSTM, which costs more than all others together, and the oracle."""
LABELS: Mapping[str, str] = {
    "last": "last value",
    "mean": "running mean",
    "median": "running median",
    "smoothing": "exponential smoothing",
    "ar": "autoregression",
    "linear": "linear (Wrangler)",
    "best": "follow the best",
    "lstm": "LSTM (DPro-SM)",
    "trained": "LSTM, also trained before",
    "oracle": "oracle",
    "dpro_sm": "DPro-SM, deciding too",
    "deadline": "deadline, deciding too",
    "deadline_by_replay": "deadline by replay, deciding too",
}
DECIDING: Mapping[str, str] = {"dpro_sm": "", "deadline": "forecast=lstm", "deadline_by_replay": "forecast=lstm"}
"""Policies with the LSTM as their forecaster, and their options: what a server spends on all of it."""
BASE, LSTM, BEST, ORACLE = "last", "lstm", "best", "oracle"
TRAINED = "trained"
"""The same LSTM, trained on earlier runs under the same delays, as *DPro-SM* 5.3 may be read: "a dataset of historical
worker completion times and related snapshots of the system's state is used". In simulated worlds alone."""
TRAINING_STEPS = 200
READINGS = {"trained online": LSTM, "also trained beforehand": TRAINED}
"""Of the paper's LSTM."""
TRIVIAL = ("last", "mean", "median", "smoothing")
"""They learn nothing."""
LEARNED = ("ar", "linear", "lstm")
CAUSAL = tuple(name for name in FORECASTERS if name != ORACLE)
SIMPLE = tuple(name for name in CAUSAL if name != LSTM)
SIMULATED = (*CAUSAL, TRAINED)
MEMBERS = ("last", "mean", "median", "smoothing", "ar", "linear")
"""Whom `best` follows."""
WITH_STATE = ("linear", "best", "lstm", "trained")
"""Those that hear of the state of the system."""
STATES: Mapping[str, str] = {"burst credits": "credits"}
"""Kinds of delays that have one, and what it is."""
QUANTILES = (0.1, 0.5, 0.9)
BINS = (1, 2, 5, 10, 20, 60, 200)
"""Rounds that had been seen, from which on errors are averaged up to the next of these."""
FEW_ROUNDS = (2, 5)
"""The bins below ten rounds: *DPro-SM* section 4 says that 82 % of jobs have fewer than ten tasks."""
LEARNING_CURVES = ("last", "median", "ar", "best", "lstm", "trained")
DRAWN = ("periodic", "Markov states")
DRAWN_ROUNDS = 60
