"""`icl-interp zoo`."""

from icl_interp.cli.root import say


def zoo() -> None:
    """List the bundled models."""
    from icl_interp.report import terminal

    say(terminal.zoo())
