"""Training until something has been learnt: how long, at which rate, and what each epoch and the end are worth."""

from lockstep.learning.course import Course, Images, Rate
from lockstep.learning.rates import plan_of, rate_factor, scheduled
from lockstep.learning.stopping import EarlyStopping

__all__ = ["Course", "EarlyStopping", "Images", "Rate", "plan_of", "rate_factor", "scheduled"]
