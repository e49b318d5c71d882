"""A colour for each Lipschitz constant, the same in every figure."""

from icl_interp.figures.colours import BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW

BY_L = {0.1: SKY, 0.3: BLUE, 1.0: GREEN, 3.0: YELLOW, 10.0: ORANGE}


def colour_of(lipschitz: float) -> str:
    """The colour of a Lipschitz constant."""
    return BY_L.get(lipschitz, PURPLE)
