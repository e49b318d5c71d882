"""Naim & Asher (2025), Analyzing limits for in-context learning."""
