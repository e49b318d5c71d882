"""Figures of reports and of experiments."""
