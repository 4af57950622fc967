"""Run a notebook in a real Jupyter kernel: `kernel.py NOTEBOOK`, in an environment that has one.

It prints the outputs of each cell of code as a line of JSON.
"""

import asyncio
import json
import sys

import nbformat
from nbclient import NotebookClient


def main(path):
    notebook = nbformat.read(path, as_version=4)
    asyncio.run(NotebookClient(notebook, kernel_name="python3", timeout=120).async_execute())
    cells = [
        {
            "outputs": [
                {
                    "type": output["output_type"],
                    "html": output.get("data", {}).get("text/html", ""),
                    "text": output.get("data", {}).get("text/plain", "") or output.get("text", ""),
                }
                for output in cell["outputs"]
            ],
        }
        for cell in notebook.cells
        if cell["cell_type"] == "code"
    ]
    print(json.dumps(cells))


if __name__ == "__main__":
    main(sys.argv[1])
