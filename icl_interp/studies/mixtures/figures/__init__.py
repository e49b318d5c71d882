"""Figures of the study: pure functions of stored results."""
