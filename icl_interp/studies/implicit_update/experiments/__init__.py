"""Tables and figures of the work, reproduced."""
