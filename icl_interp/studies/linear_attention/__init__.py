"""Zhang, Frei & Bartlett (2023), trained linear self-attention, and Wu's slides on them (2025)."""
