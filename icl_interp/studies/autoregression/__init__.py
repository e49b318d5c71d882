"""The study `autoregression`, of in-context autoregressive learning by linear attention.

Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024).
"""
