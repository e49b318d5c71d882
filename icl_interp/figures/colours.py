"""Colours of figures. Readers with any kind of colour vision can tell them apart."""

# Okabe & Ito (2008).
BLUE = "#0072B2"
ORANGE = "#D55E00"
GREEN = "#009E73"
PURPLE = "#AA4499"
SKY = "#56B4E9"
YELLOW = "#E69F00"

INK = "#222222"
GREY = "#6B6B6B"
PALE = "#B8B8B8"
FAINT = "#EFEFEF"

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY)  # of lines beside each other
