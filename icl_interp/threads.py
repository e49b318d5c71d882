"""How threads of the command line wait for each other.

Light: the setting has to be made before torch is imported.
"""

import os
import sys

POLICY = "OMP_WAIT_POLICY"
PASSIVE = "PASSIVE"


def wait_passively() -> None:
    """Have threads of OpenMP sleep while they wait for each other, unless somebody chose already.

    By default they spin: they ask again and again whether the others are done. On a machine that
    other processes use too, a thread that waits so takes the core that the one it waits for needs.
    The processes that this one starts inherit the setting. Where torch is imported already it is
    too late, and nothing is set: a notebook's process is left as it is.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault(POLICY, PASSIVE)
