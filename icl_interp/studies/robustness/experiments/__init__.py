"""Tables and figures of the work, done again."""
