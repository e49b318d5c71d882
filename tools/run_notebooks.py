"""Run the notebooks and store them with what they print and draw: `make notebooks`.

python tools/run_notebooks.py [NAME ...]

Each notebooks/NAME.py is run as a fresh notebook, and NAME.ipynb is written beside it, so that a
code host shows it as it is. Figures are stored as PNG of few colours, drawn by the Chrome or
Chromium of the machine; what goes to standard error, such as progress bars, is left out. Without a
name all are run, one after another: some ten minutes of one core.
"""

import base64
import io
import os
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from PIL import Image

from icl_interp.figures import files

FOLDER = Path(__file__).parents[1] / "notebooks"
PATIENCE = 900  # seconds for a cell
LARGEST = 500_000  # bytes of a notebook
LARGEST_PICTURE = 60_000
# Colours of a picture: a file is a quarter as large. Those farthest apart are kept, so that a scale
# stays as it was. The second number is for one that is still too large.
COLOURS = (128, 32)


def run(source: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs. Equal outputs give an equal file."""
    notebook = jupytext.read(source)
    # jupytext's ids are drawn anew each time.
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    NotebookClient(
        notebook,
        timeout=PATIENCE,
        kernel_name="python3",
        resources={"metadata": {"path": str(FOLDER)}},
        record_timing=False,
    ).execute()
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
        for output in pictures(cell):
            output.data["image/png"] = smaller(output.data["image/png"])
    return notebook


def pictures(cell: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The outputs of a cell that are pictures."""
    return [one for one in cell.get("outputs", ()) if "image/png" in one.get("data", {})]


def smaller(png: str) -> str:
    """A picture of few colours, in base64 both."""
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    found = b""
    for n_colours in COLOURS:
        file = io.BytesIO()
        few = image.quantize(n_colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(file, "png", optimize=True)
        found = file.getvalue()
        if len(found) <= LARGEST_PICTURE:
            break
    return base64.b64encode(found).decode()


def too_large(notebook: nbformat.NotebookNode) -> list[str]:
    """What is larger than a stored notebook may be, in words."""
    found = []
    for cell in notebook.cells:
        for output in pictures(cell):
            size = len(base64.b64decode(output.data["image/png"]))
            if size > LARGEST_PICTURE:
                found.append(f"{cell.id}: a picture of {size:,} bytes")
    size = len(nbformat.writes(notebook).encode())
    if size > LARGEST:
        found.append(f"{size:,} bytes in all")
    return found


def main(names: list[str]) -> None:
    """Run those named, or all."""
    # A kernel takes these from its environment: figures as PNG, and the browser that draws them.
    os.environ["PLOTLY_RENDERER"] = "png"
    os.environ.setdefault("BROWSER_PATH", files.browser() or "")
    sources = [FOLDER / f"{name}.py" for name in names] or sorted(FOLDER.glob("*.py"))
    for source in sources:
        notebook = run(source)
        problems = too_large(notebook)
        if problems:
            sys.exit(f"{source.name}: " + "; ".join(problems))
        nbformat.write(notebook, source.with_suffix(".ipynb"))
        print(source.stem)


if __name__ == "__main__":
    main(sys.argv[1:])
