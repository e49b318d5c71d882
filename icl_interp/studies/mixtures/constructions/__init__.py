"""Models of known truth, with the verdict that each must get."""
