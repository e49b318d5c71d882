"""The window of every head, for models that are more than one softmax head.

Collins et al. (2024) leave several heads, layers, MLPs and positions to future work. The window of
a head is read off its scores as that of a unit is (`score_map`). In a later layer a head reads a
stream that earlier layers have changed, and with positions its scores depend on places: the share
of the scores that x_i^T M x_q explains then falls below 1.
"""

from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.probes.record import Activations
from icl_interp.probes.sweep import Sweep, Swept
from icl_interp.results import make_array
from icl_interp.studies.lipschitz.measurements.score_map import score_map
from icl_interp.studies.lipschitz.measurements.unit import sigma_of, task_of
from icl_interp.theory import lipschitz as theory

QUANTITIES = ("w", "deviation", "fit")


def _hooks(lab: Lab) -> list[str]:
    return [f"blocks.{layer}.attn.hook_attn_scores" for layer in range(lab.model.cfg.n_layers)]


def _scores_of_all(lab: Lab) -> Sweep:
    """All heads' scores of the examples at the query, less that of the query itself."""
    seen = Activations(_hooks(lab), keep=lambda rows: rows[:, :, -1, :-1])
    return lab.ask(prompts=lab.few, probes=[seen])


@measurement("lipschitz/head windows", asks=_scores_of_all)
def head_windows(lab: Lab, swept: Swept) -> DataArray:
    """w of each head's whitened M, how far M is from w I, and what M explains of the scores.

    Returns:
        (head, quantity), heads of all layers as "layer.head". "w" is the mean eigenvalue of
        Sigma^(1/2) M Sigma^(1/2), "deviation" the distance from w I over the norm, "fit" the
        share of the scores' variance in prompts.
    """
    task = task_of(lab)
    sigma = sigma_of(task)
    xs = swept.prompts.xs.double()
    ys = swept.prompts.ys.double()
    recorded = swept.probe(Activations).recorded

    # A row a head, layer by layer.
    names = []
    rows = []
    for layer, hook in enumerate(_hooks(lab)):
        for head, scores in enumerate(recorded[hook].double().unbind(1)):
            found = score_map(xs, ys, scores)
            shape = theory.isotropy(theory.whitened(found.matrix, sigma))
            names.append(f"{layer}.{head}")
            rows.append([float(shape.window), float(shape.deviation), found.fit])
    axes = {"head": names, "quantity": QUANTITIES}
    note = "least squares of each head's scores at the query of in-distribution prompts"
    return make_array(rows, axes, note=note)
