"""The setting of Wu's slides on Zhang, Frei & Bartlett (2023), experiment by experiment, and ours.

The slides prove theorems about a layer of linear self-attention and show figures of GPT-2-style
models, of which they give the lengths and the laws, and no sizes.

The values stand in `settings.json`; `icl_interp.experiments.settings` says how they are written.
"""

from pathlib import Path

from icl_interp.experiments.settings import read

SETTINGS = read(Path(__file__).with_suffix(".json"))
