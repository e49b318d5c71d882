"""A `HookedTransformer` that is adapted as any other module, by its own hook points."""

from dataclasses import replace

import icl_interp
from icl_interp.adapters import Place

OF_ATTENTION = (
    *("attn.hook_q", "attn.hook_z", "attn.hook_result", "hook_attn_out"),
    *("hook_q_input", "hook_k_input", "hook_v_input"),
)
OF_MLP = ("hook_mlp_in", "hook_mlp_out")


def adapted(model, example, encoding="interleaved", task=None, without=(), more=(), **change):
    """It with every hook point that tools ask for, but for some, at its own places or others.

    Args:
        model: a `HookedTransformer`.
        example: tokens for the trial.
        encoding: how it reads prompts.
        task: what prompts are drawn from.
        without: what names of hook points that are left out contain.
        more: further hook points of each block, by their names in a block.
        change: places of hook points in all blocks, by their names in a block, with "__" for ".":
            `hook_mlp_in="blocks.{i}.hook_resid_mid"`, or a `Place`.
    """
    cfg = model.cfg
    layers = range(cfg.n_layers)
    kinds = [*OF_ATTENTION] * (not cfg.mlp_only) + [*OF_MLP] * (not cfg.attn_only) + [*more]
    points = {}
    for i in layers:
        for name in kinds:
            place = change.get(name.replace(".", "__"), f"blocks.{{i}}.{name}")
            if isinstance(place, Place):
                points[f"blocks.{i}.{name}"] = replace(place, module=place.module.format(i=i))
            else:
                points[f"blocks.{i}.{name}"] = place.format(i=i)
    patterns = [] if cfg.mlp_only else [f"blocks.{i}.attn.hook_pattern" for i in layers]
    return icl_interp.adapt(
        model,
        encoding=encoding,
        residual=["blocks.0.hook_resid_pre", *(f"blocks.{i}.hook_resid_post" for i in layers)],
        patterns=[] if "hook_pattern" in without else patterns,
        points={
            name: place for name, place in points.items() if not any(w in name for w in without)
        },
        example=example,
        task=task,
    )


def of(checkpoint, **change):
    """The model of a checkpoint, adapted, with its task and encoding."""
    encoding, task = checkpoint.encoding, checkpoint.task
    example = encoding.encode(checkpoint.task.sample(2, icl_interp.provenance.generator(0, "own")))
    example = example.to(checkpoint.model.numbers)
    return adapted(checkpoint.model, example, encoding, task, **change)
