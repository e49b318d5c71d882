"""`icl-interp zoo`."""

from icl_interp.checkpoints import bundled
from icl_interp.console import console


def zoo() -> None:
    """List the bundled models, by the task that they were trained on."""
    from rich.table import Table
    from rich.text import Text

    from icl_interp.descriptions import model_words, task_words

    by_task: dict[str, list[str]] = {}
    for name in bundled.names():
        task = task_words(bundled.config(name)["task"])
        by_task.setdefault(task, []).append(name)
    # The same widths under each task, so that columns line up down the page.
    longest = max(len(name) for name in bundled.names())
    for task, names in by_task.items():
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        table.add_column(no_wrap=True, width=longest)
        table.add_column(no_wrap=True, width=9)
        table.add_column()
        for name in names:
            score = bundled.provenance(name)["in_distribution"]["r2"]
            words = model_words(bundled.config(name)["model"])
            table.add_row(Text(name), Text(f"R2 {score:.4f}"), Text(words))
        console().print(Text(task, style="bold"), table, Text(""), sep="\n")
    console().print("R2 is the share of the variance in distribution; 1 is exact.")
