"""The study `copying`: does a model answer with the last label that it was shown?"""
