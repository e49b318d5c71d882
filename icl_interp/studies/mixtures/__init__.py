"""Panwar et al. (2024), Yadlowsky et al. (2023): models of mixtures, inside of them and outside."""
