"""He, Pan, Chen & Yang (2025): softmax heads that together take a debiased step of descent."""
