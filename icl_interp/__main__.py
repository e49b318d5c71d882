"""`python -m icl_interp` is the same as `icl-interp`."""

from icl_interp.cli import main

main()
