"""The setting of Naim & Asher (2025), experiment by experiment, beside ours.

Models are named in the work by degree: M3 is trained on degree 3, M135 on degrees 1, 3 and 5, AL
has attention layers only. What is said of "all models" counts for each of them.

The values stand in `settings.json`; `icl_interp.experiments.settings` says how they are written.
"""

from pathlib import Path

from icl_interp.experiments.settings import read

SETTINGS = read(Path(__file__).with_suffix(".json"))
