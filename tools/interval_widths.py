"""How wide intervals are for samples of several sizes: the table of docs/howto/n_prompts.md.

    python tools/interval_widths.py                       # a minute or two on one core
    python tools/interval_widths.py --sizes 64 256        # other sizes

One bundled model is analysed once for each size. The table has what decided each claim.
"""

import argparse
import time

from icl_interp.pipeline import analyze

MODEL = "affine"
CLAIMS = ("limits.context_erased", "lipschitz.kernel_smoother")
SIZES = (64, 256, 1024)


def rows(n_prompts: int) -> list[str]:
    """Lines of a table in Markdown: one for each claim, measured on so many prompts."""
    start = time.process_time()
    report = analyze(MODEL, claims=CLAIMS, n_prompts=n_prompts, progress=False)
    seconds = time.process_time() - start
    lines = []
    for claim in CLAIMS:
        finding = report[claim]
        # What decided; where a precondition fails nothing did, and the effect size is shown.
        found = finding.test or finding.estimate
        if found is None:
            lines.append(f"| {n_prompts} | `{claim}` | not measured | – | {finding.verdict} | – |")
            continue
        width = found.high - found.low
        numbers = f"{found.value:.3g} [{found.low:.3g}, {found.high:.3g}]"
        cells = (
            n_prompts,
            f"`{claim}`",
            numbers,
            f"{width:.2g}",
            finding.verdict,
            f"{seconds:.0f}",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    sizes = parser.parse_args().sizes
    print("| prompts | claim | measured | width | verdict | seconds of a core |")
    print("|---|---|---|---|---|---|")
    for n_prompts in sizes:
        print(*rows(n_prompts), sep="\n", flush=True)


if __name__ == "__main__":
    main()
