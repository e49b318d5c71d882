"""Raventos et al. (2023): does a model that saw few functions remember them, or learn anew?"""
