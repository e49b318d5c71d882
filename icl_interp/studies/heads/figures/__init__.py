"""Figures of reports, a file a figure."""
