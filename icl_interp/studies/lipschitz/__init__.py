"""The study `lipschitz`: Collins et al. (2024) on the softmax attention window."""
