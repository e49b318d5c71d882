"""Von Oswald et al. (2023) and Ahn et al. (2023): layers as steps of gradient descent."""
