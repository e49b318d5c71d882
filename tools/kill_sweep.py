"""Kill the runner, the workers and the nodes of a sweep, and compare what comes out.

python tools/kill_sweep.py FOLDER [--kills 50] [--seed 0]

A sweep of twelve small trainings is made once in peace. Then it is made again while something is
killed at random moments: the command that runs it, a process that trains, or, on a Ray cluster of
two nodes, a node. Each time it is called again until it is whole. Then the weights of each run must
be those of the sweep in peace, byte for byte, and each run must stand once in the table. Where a
sweep is whole before all kills are done, another one begins. FOLDER keeps everything. It takes
about 15 minutes on two cores, and needs `icl_interp[cluster]` for the nodes.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd

PLAN = """
recipe: affine
set:
  model: {n_layers: 1, d_model: 32, n_heads: 2, n_ctx: 24}
  task.n_points: 11
  training: {steps: 1200, batch_size: 32, warmup_steps: 10, checkpoint_every: 50, log_every: 50}
over:
  training.seed: [0, 1, 2, 3, 4, 5]
  training.learning_rate: [1.0e-3, 3.0e-4]
analyze: false
"""
LOCAL = ["--on=local", "--engine=processes=2"]
EARLIEST, LATEST = 3.0, 14.0  # seconds after which something is killed
NODES = 5  # each so many kills one is that of a node


def main() -> None:
    """Kill, go on, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    plan = options.folder / "sweep.yaml"
    plan.write_text(PLAN)
    stream = random.Random(options.seed)

    peace = options.folder / "in peace"
    finish(plan, peace, LOCAL)
    counted: Counter[str] = Counter()
    n_nodes = options.kills // NODES
    sweeps = 0
    while counted["runner"] + counted["worker"] < options.kills - n_nodes:
        out = options.folder / f"sweep {sweeps}"
        left = options.kills - n_nodes - counted["runner"] - counted["worker"]
        counted += killed_locally(plan, out, left, stream)
        finish(plan, out, LOCAL)
        compare(peace, out)
        sweeps += 1
    while counted["node"] < n_nodes:
        out = options.folder / f"sweep {sweeps}"
        counted["node"] += killed_nodes(plan, out, n_nodes - counted["node"], stream)
        compare(peace, out)
        sweeps += 1
    told = ", ".join(f"{n} of a {what}" for what, n in sorted(counted.items()))
    print(
        f"{sum(counted.values())} kills ({told}) over {sweeps} sweeps: nothing lost, nothing twice"
    )


def begun(plan: Path, out: Path, engine: list[str]) -> subprocess.Popen[bytes]:
    """The command that makes a sweep; its output goes to a file beside the sweep."""
    argv = [sys.executable, "-m", "icl_interp", "sweep", str(plan), f"--out={out}", *engine]
    log = out.with_suffix(".log").open("ab")
    return subprocess.Popen(argv, stdout=log, stderr=log)


def finish(plan: Path, out: Path, engine: list[str]) -> None:
    """Make what is missing of a sweep."""
    if begun(plan, out, engine).wait():
        sys.exit(f"{out} was not finished; see {out.with_suffix('.log')}")


def killed_locally(plan: Path, out: Path, most: int, stream: random.Random) -> Counter[str]:
    """Kill the runner or a worker until the sweep is whole, or so many times."""
    counted: Counter[str] = Counter()
    while sum(counted.values()) < most:
        runner = begun(plan, out, LOCAL)
        if waited(runner, stream):
            break
        workers = children(runner.pid)
        if workers and stream.random() < 0.5:
            counted["worker"] += kill(stream.choice(workers))
            # The runner goes on with what the worker left.
            if waited(runner, stream):
                continue
            if sum(counted.values()) >= most:
                runner.wait()
                break
        counted["runner"] += kill(runner.pid)
        runner.wait()
    return counted


def waited(runner: subprocess.Popen[bytes], stream: random.Random) -> bool:
    """Whether the runner has ended by itself before a random moment."""
    try:
        runner.wait(timeout=stream.uniform(EARLIEST, LATEST))
    except subprocess.TimeoutExpired:
        return False
    return True


def kill(process: int) -> int:
    """Kill a process; how many were killed."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def children(process: int) -> list[int]:
    """Processes that train: children of the runner, without the one that watches its resources."""
    asked = ["ps", "--ppid", str(process), "-o", "pid=,args="]
    lines = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.splitlines()
    return [int(line.split()[0]) for line in lines if "spawn_main" in line]


def killed_nodes(plan: Path, out: Path, most: int, stream: random.Random) -> int:
    """Make a sweep on a Ray cluster of two nodes, of which one is killed and replaced."""
    from ray.cluster_utils import Cluster

    from icl_interp.jobs import on_ray

    size = {"num_cpus": 1, "object_store_memory": on_ray.STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    second = cluster.add_node(**size)
    cluster.wait_for_nodes()
    n_killed = 0
    try:
        runner = begun(plan, out, ["--on=ray", f"--engine=address={cluster.address}"])
        while not waited(runner, stream):
            if n_killed < most:
                cluster.remove_node(second, allow_graceful=False)
                n_killed += 1
                second = cluster.add_node(**size)
        if runner.returncode:
            sys.exit(f"{out} was not finished; see {out.with_suffix('.log')}")
    finally:
        cluster.shutdown()
    return n_killed


def compare(peace: Path, out: Path) -> None:
    """End with a message unless a sweep holds the runs of the other, each once and equal."""
    expected = weights(peace)
    found = weights(out)
    if set(found) != set(expected):
        sys.exit(f"{out} holds other runs than {peace}: {set(found) ^ set(expected)}")
    for name, content in expected.items():
        if found[name] != content:
            sys.exit(f"{out / name} has other weights than {peace / name}")
    tables = [
        pd.read_csv(folder / "table.csv")[["run", "state", "error"]] for folder in (peace, out)
    ]
    if not tables[0].equals(tables[1]):
        sys.exit(f"the table of {out} does not hold each run once, with its error")
    # A file is written under a name that begins with a dot, and then gets its own.
    partial = [path for path in out.rglob(".*") if path.suffix != ".lock"]
    if partial:
        print(f"{out}: {len(partial)} files that were half-written lie beside the whole ones")


def weights(folder: Path) -> dict[str, bytes]:
    """The weights of each run of a sweep, by their place in it."""
    found = folder.rglob("model.safetensors")
    return {str(path.parent.relative_to(folder)): path.read_bytes() for path in found}


if __name__ == "__main__":
    main()
