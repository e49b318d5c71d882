"""`python -m icl_interp` is the same as `icl-interp`."""

from icl_interp.cli.program import main

main()
