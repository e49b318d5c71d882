"""Whether verdicts depend on the seed of a report's prompts: bundled models, each with several seeds.

python tools/verdicts_over_seeds.py                                # a table; about 15 minutes on one core
python tools/verdicts_over_seeds.py affine lsa_fixed --seeds 3

A verdict that is firm with one seed must stand with every other one. The table counts, of each
model, the claims that apply, those whose verdict is not the same for all seeds, those that go from
supported to contradicted, and the firm verdicts of the first seed that another seed leaves open.
"""

import argparse
from collections import defaultdict

import icl_interp
from icl_interp.analyses.finding import Finding

MODELS = ("affine", "lipschitz_relu_kqv", "autoregression_states", "degrees_135")
SEEDS = 7
DECIDED = ("supported", "contradicted")


def findings(model: str, n_seeds: int) -> dict[str, list[Finding]]:
    """The findings on each claim that applies, a seed after the other."""
    found: dict[str, list[Finding]] = defaultdict(list)
    for seed in range(n_seeds):
        report = icl_interp.analyze(model, seed=seed, progress=False)
        for finding in report.findings:
            if finding.verdict != "not_applicable":
                found[finding.id].append(finding)
    return found


def said(verdicts: list[Finding]) -> str:
    """Verdicts of one claim, seed by seed; a star marks a firm one."""
    letters = {"supported": "S", "contradicted": "C"}
    return " ".join(letters.get(one.verdict, "I") + ("*" if one.firm else "") for one in verdicts)


def main() -> None:
    """Print the table, and the claims that change."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    print("| model | apply | change | S and C | firm, then open |")
    print("|---|---|---|---|---|")
    changed: list[str] = []
    for model in given.models:
        of_model = findings(model, given.seeds)
        counts = {"change": 0, "opposite": 0, "firm": 0}
        for claim, each in of_model.items():
            verdicts = {one.verdict for one in each}
            if len(verdicts) > 1:
                counts["change"] += 1
                changed.append(f"{model}, {claim}: {said(each)}")
            counts["opposite"] += verdicts.issuperset(DECIDED)
            counts["firm"] += bool(each[0].firm) and len(verdicts) > 1
        numbers = " | ".join(str(count) for count in counts.values())
        print(f"| `{model}` | {len(of_model)} | {numbers} |", flush=True)
    print("\nBy seed (S supported, C contradicted, I inconclusive, * firm):\n")
    print("\n".join(changed) or "none changes")


if __name__ == "__main__":
    main()
