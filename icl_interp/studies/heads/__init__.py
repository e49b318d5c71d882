"""What the heads of a layer have to do with one another."""
