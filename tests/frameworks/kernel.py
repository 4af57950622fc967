"""Run a notebook in a real Jupyter kernel: `kernel.py NOTEBOOK`, in an environment that has one.

A line of JSON tells, for each cell of code, the HTML that was displayed, update by update, and its outputs in
the end.
"""

import asyncio
import json
import sys

import nbformat
from nbclient import NotebookClient


class Watched(NotebookClient):
    """A client that also keeps what updates have replaced."""

    pages = None

    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] in ("display_data", "update_display_data"):
            self.pages.setdefault(cell_index, []).append(msg["content"]["data"].get("text/html", ""))
        return super().process_message(msg, cell, cell_index)


def main(path):
    notebook = nbformat.read(path, as_version=4)
    client = Watched(notebook, kernel_name="python3", timeout=120)
    client.pages = {}
    asyncio.run(client.async_execute())
    told = [
        {
            "pages": client.pages.get(number, []),
            "outputs": [
                {
                    "type": one["output_type"],
                    "html": one.get("data", {}).get("text/html", ""),
                    "text": one.get("data", {}).get("text/plain", "") or one.get("text", ""),
                }
                for one in cell["outputs"]
            ],
        }
        for number, cell in enumerate(notebook.cells)
        if cell["cell_type"] == "code"
    ]
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
