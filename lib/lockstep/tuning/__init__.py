"""Tuning: a study of settings, spread over engines, whose hopeless trials are stopped early.

A **learning curve** is a float array [epochs]: the study's score after epochs 1, 2, ..., in 0 to 1, higher is better.

    prior.py         synthetic learning curves of many kinds
    forecasting/     how unfinished curves will end
"""
