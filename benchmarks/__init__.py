"""What the package costs, beside the alternatives and the goals: `python -m benchmarks`."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # every model here is made from scratch or bundled
