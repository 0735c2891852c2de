"""Write the notebooks from the cells below and run them: ``python notebooks/build.py``.

The text of a notebook is reviewed here, where a change is readable; the ``.ipynb`` files are
products, committed with their outputs so that they can be read without running.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent

GRAPH = """
# The Transformer as a graph

You will see the three edge sets of a Transformer drawn, compute one attention layer by hand with
DGL's message functions, and find it equal to dense, masked attention.
---
import dgl.function as fn
import torch

import graphformer as gf
from graphformer.viz import attention_graph, attention_map

torch.manual_seed(0)
source = "ich mag schwarzen kaffee".split()
target = "<sos> i like black coffee".split()
---
## Tokens are nodes, attention is edges

A pool builds the graph of a batch: all encoder nodes, then all decoder nodes, and three edge sets.
`ee` is complete, `ed` is complete from source to target, `dd` is causal: position j looks at i ≤ j.
There is no mask. What a mask would forbid is an edge that does not exist.
---
pool = gf.GraphPool()
batch = pool([[4, 5, 6, 7]], [[0, 4, 5, 6, 7, 1]])
batch.edges
---
edges = {kind: (e.src.numpy(), e.dst.numpy()) for kind, e in batch.edges.items()}
attention_graph(source, target, edges, title="encoder above, decoder below")
---
## One attention layer by hand

Every node gets a query, a key and a value. Along each edge i → j the score is the product of the
query of j and the key of i. Three message functions and a softmax over the in-edges are all there
is (Vaswani et al. 2017, equation 1).
---
H, D = 2, 8
q, k, v = (torch.randn(5, H, D) for _ in range(3))
g = batch.edges["dd"].graph          # DGL's graph of the causal edges
with g.local_scope():
    g.dstdata["q"], g.srcdata["k"], g.srcdata["v"] = q / D**0.5, k, v
    g.apply_edges(fn.u_dot_v("k", "q", "score"))             # one score an edge and head
    g.edata["exp"] = g.edata["score"].exp()
    g.update_all(fn.copy_e("exp", "m"), fn.sum("m", "z"))    # the normaliser of each node
    g.update_all(fn.u_mul_e("v", "exp", "m"), fn.sum("m", "wv"))
    by_hand = g.dstdata["wv"] / g.dstdata["z"]
by_hand.shape
---
## The same from the library, and dense

`gf.attend` subtracts the largest score of each node first, so large scores do no harm; else it is
the same. Dense attention with a mask gives the same numbers.
---
out, weights = gf.attend(batch.edges["dd"], q, k, v, return_weights=True)
dense = torch.nn.functional.scaled_dot_product_attention(
    q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), is_causal=True
).transpose(0, 1)
print(float((out - by_hand).abs().max()), float((out - dense).abs().max()))
---
## The map is the attention

The weights come back edge by edge; `dense` puts them on a map. Rows sum to 1. Cells without an
edge are not small: they are empty.
---
attention_map(batch.edges["dd"].dense(weights).numpy(), target, target)
---
## Any other graph

Nothing above knew of sentences. Here each node looks at itself and its parent in a tree.
---
parents = {1: 0, 2: 0, 3: 1, 4: 1}
pairs = [(i, i) for i in range(5)] + [(parent, child) for child, parent in parents.items()]
src, dst = torch.tensor(pairs).T
tree = gf.EdgeSet(src.contiguous(), dst.contiguous(), 5, 5, "tree")
out, weights = gf.attend(tree, q, k, v, return_weights=True)
attention_map(tree.dense(weights).numpy(), list("abcde"), list("abcde"))
"""

NOTEBOOKS = {"01_transformer_as_graph": GRAPH}


def notebook(text: str) -> nbformat.NotebookNode:
    """Cells are divided by ``---``; one that begins like text is text, the others are code."""
    cells = []
    for part in text.strip().split("\n---\n"):
        if part[0] == "#" or (part[0].isupper() and part.rstrip().endswith(".")):
            cells.append(nbformat.v4.new_markdown_cell(part))
        else:
            cells.append(nbformat.v4.new_code_cell(part))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # the same each time, for a readable history
    made = nbformat.v4.new_notebook(cells=cells)
    made.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    return made


def run(made: nbformat.NotebookNode, folder: Path = FOLDER) -> nbformat.NotebookNode:
    """Run all cells in a fresh kernel; an error in a cell is an error here."""
    client = NotebookClient(made, timeout=600, resources={"metadata": {"path": str(folder)}})
    return client.execute()


def main() -> None:
    """Build and run all of them."""
    for name, text in NOTEBOOKS.items():
        made = run(notebook(text))
        for cell in made.cells:
            cell.metadata.pop("execution", None)  # times of day say nothing
        nbformat.write(made, FOLDER / f"{name}.ipynb")


if __name__ == "__main__":
    main()
