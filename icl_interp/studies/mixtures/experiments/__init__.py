"""Tables and figures of the works, reproduced."""
