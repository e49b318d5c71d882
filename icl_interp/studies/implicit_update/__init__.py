"""Veličković et al. (2024): softmax attention disperses as the number of items grows."""
