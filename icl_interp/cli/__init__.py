"""The command line, thin: it parses, calls the library, and prints.

Heavy imports wait inside the commands.
Exit status: 0 done; 2 the input is wrong (one line on stderr, no traceback); 130 interrupted; 143
terminated, with the training saved and a line on stderr (`training.process.Terminated` passes
through here); anything else is a bug.
"""

from icl_interp.cli.program import main
from icl_interp.cli.root import app

__all__ = ["app", "main"]
