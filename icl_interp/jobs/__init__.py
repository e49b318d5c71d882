"""Jobs: calls of a function that each keep their result in a folder, on engines that exist.

>>> import json, tempfile
>>> from pathlib import Path
>>> from icl_interp.jobs import HERE, Job, run
>>> folder = Path(tempfile.mkdtemp())
>>> jobs = [Job(text, folder / text, json.loads, {"s": text}) for text in ("1", "[2]", "{")]
>>> [(end.job.name, end.state, end.result) for end in run(jobs, HERE)]
[('1', 'done', 1), ('[2]', 'done', [2]), ('{', 'failed', None)]
"""

from icl_interp.jobs.engine import HERE, Engine, asked, results, run
from icl_interp.jobs.job import End, Job, claim_folder, command, kept, own_command, part

__all__ = [
    "HERE",
    "End",
    "Engine",
    "Job",
    "asked",
    "claim_folder",
    "command",
    "kept",
    "own_command",
    "part",
    "results",
    "run",
]
