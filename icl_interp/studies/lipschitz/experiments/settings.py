"""The setting of the slides on Collins et al. (2024), experiment by experiment, beside ours.

The slides show figures and give hardly any number of how these were made: neither d, n and sigma
nor how units are trained. The paper itself is not the source here.

The values stand in `settings.json`; `icl_interp.experiments.settings` says how they are written.
"""

from pathlib import Path

from icl_interp.experiments.settings import read

SETTINGS = read(Path(__file__).with_suffix(".json"))
