"""The study `autoregression`: Sander et al. (2024) on in-context autoregressive learning by linear attention."""
