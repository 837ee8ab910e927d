"""Tuning: many settings of one training, spread over workers, and the hopeless ones stopped early."""
