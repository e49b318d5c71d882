"""Garg et al. (2022) against Hill et al. (2025): prompts of another law than in training."""
