"""Dherin et al. (2025): a context acts as an update of the weights behind attention."""
