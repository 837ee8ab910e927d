"""Lockstep: how should I distribute the training of this model on these machines, and what does it really gain?"""

__version__ = "0.1.0"
