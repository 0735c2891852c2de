"""Slow, obvious twins of the core: no graph, no edge tricks, nothing shared with the package.

`edge_softmax` goes through targets one by one. `PaddedModel` is both models as most people write
them, dense with masks and padding; it reads the weights of a model by name and takes lists of ids.
`graves` is adaptive computation time in plain Python numbers.
"""

import math
from typing import NamedTuple

import torch
from torch.nn import functional as F


def edge_softmax(src, dst, q, k, v, bias=None):
    """Attention along any list of edges -> (N_dst, H, D_v) and weights (E, H)."""
    src, dst = [int(i) for i in src], [int(j) for j in dst]
    weights = [None] * len(src)
    rows = []
    for j in range(len(q)):
        total = torch.zeros(q.shape[1], v.shape[-1], dtype=q.dtype)
        into_j = [e for e in range(len(src)) if dst[e] == j]
        if into_j:
            scores = [(q[j] * k[src[e]]).sum(-1) / math.sqrt(q.shape[-1]) for e in into_j]
            if bias is not None:
                scores = [score + bias[e] for score, e in zip(scores, into_j, strict=True)]
            shares = torch.softmax(torch.stack(scores), 0)
            for share, e in zip(shares, into_j, strict=True):
                weights[e] = share
                total = total + share.unsqueeze(-1) * v[src[e]]
        rows.append(total)
    out = torch.stack(rows) if rows else q.new_zeros(0, q.shape[1], v.shape[-1])
    return out, torch.stack(weights) if weights else q.new_zeros(0, q.shape[1])


class Graves(NamedTuple):
    """N(t), R(t) and the weights of the steps of Graves 2016, equations 7, 8 and 6."""

    steps: int
    remainder: float
    weights: list


def graves(probabilities, threshold, max_depth):
    """The halting probabilities which the steps would give -> what is made of them."""
    total = 0.0
    for n, p in enumerate(probabilities, start=1):
        total += p
        if total >= threshold or n == max_depth:
            remainder = 1.0 - sum(probabilities[: n - 1])
            return Graves(n, remainder, [*probabilities[: n - 1], remainder])
    raise ValueError("too few probabilities")


def sinusoid(position, dim):
    """One position's code, number by number."""
    code = []
    for i in range(dim):
        angle = position / 10000 ** ((i // 2 * 2) / dim)
        code.append(math.sin(angle) if i % 2 == 0 else math.cos(angle))
    return code


class Expected(NamedTuple):
    """What the padded model gives; `steps` is None for the plain one."""

    logits: torch.Tensor
    act_loss: torch.Tensor
    steps: dict | None


class PaddedModel:
    """A model's weights, and a forward pass over padded, masked batches.

    `masks[kind]` has one (queries, keys) bool matrix a sample in place of the usual pattern;
    `biases[kind]` likewise one (H, queries, keys) tensor a sample.
    """

    def __init__(self, model):
        self.model = model
        leaves = {}
        self.weights = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            # Tied matrices are one leaf here too, so that their gradients add up.
            if id(parameter) not in leaves:
                leaves[id(parameter)] = parameter.detach().clone().requires_grad_()
            self.weights[name] = leaves[id(parameter)]
        self.h, self.dim = model.h, model.dim_model
        self.dtype = self.weights["tgt_embed.weight"].dtype

    def leaves(self):
        """By the names which `model.named_parameters()` gives."""
        return {name: self.weights[name] for name, _ in self.model.named_parameters()}

    def __call__(self, src, tgt, masks=None, biases=None):
        masks, biases = masks or {}, biases or {}
        inputs = [ids[:-1] for ids in tgt]
        n, m = [len(ids) for ids in src], [len(ids) for ids in inputs]
        usual = {
            "ee": [torch.ones(i, i, dtype=torch.bool) for i in n],
            "ed": [torch.ones(j, i, dtype=torch.bool) for i, j in zip(n, m, strict=True)],
            "dd": [torch.ones(j, j, dtype=torch.bool).tril() for j in m],
        }
        self.masks = {kind: pad(masks.get(kind, usual[kind])) for kind in usual}
        self.biases = {kind: pad(biases[kind]) if kind in biases else None for kind in usual}
        run = self._universal if hasattr(self.model, "enc") else self._plain
        states, act_loss, steps = run(src, inputs)
        logits = states @ self.weights["generator.weight"].T
        return Expected(self._rows(logits, m), act_loss, steps)

    # ------------------------------------------------------------------ the two models

    def _plain(self, src, inputs):
        x = self._embed("src_embed", src) + self._positions(src)
        for i in range(len(self.model.enc_layers)):
            x = self._encoder_layer(f"enc_layers.{i}", x, x)
        memory = self._norm("enc_norm", x)
        y = self._embed("tgt_embed", inputs) + self._positions(inputs)
        for i in range(len(self.model.dec_layers)):
            y = self._decoder_layer(f"dec_layers.{i}", y, y, memory)
        return self._norm("dec_norm", y), torch.zeros((), dtype=self.dtype), None

    def _universal(self, src, inputs):
        memory, enc_steps, enc_cost = self._ponder("enc", self._embed("src_embed", src), src)
        states, dec_steps, dec_cost = self._ponder(
            "dec", self._embed("tgt_embed", inputs), inputs, memory
        )
        cost = enc_cost + dec_cost
        act_loss = self.model.rule.act_loss_weight * sum(cost) / len(cost)
        return states, act_loss, {"enc": enc_steps, "dec": dec_steps}

    def _ponder(self, side, x, ids, memory=None):
        """One layer again and again, each node with a ledger of its own."""
        lens = [len(sample) for sample in ids]
        nodes = [(b, i) for b, size in enumerate(lens) for i in range(size)]
        now = {(b, i): x[b, i] for b, i in nodes}
        going = set(nodes)
        used = {node: torch.zeros((), dtype=self.dtype) for node in nodes}
        mixed = {node: torch.zeros(self.dim, dtype=self.dtype) for node in nodes}
        steps, remainder = {}, {}
        t = 0
        while going:
            t += 1
            time = torch.tensor(sinusoid(t - 1, self.dim), dtype=self.dtype)
            for b, i in going:
                place = torch.tensor(sinusoid(i, self.dim), dtype=self.dtype)
                now[b, i] = now[b, i] + place + time
            # All nodes go through the layer, and what becomes of those that have halted is
            # thrown away: they stay what they were.
            whole = self._padded(now, lens)
            if memory is None:
                new = self._encoder_layer(f"{side}.layer", whole, whole)
            else:
                new = self._decoder_layer(f"{side}.layer", whole, whole, memory)
            normed = self._norm(f"{side}.norm", new)
            weight = self.weights[f"{side}.halting_unit.linear.weight"][0]
            offset = self.weights[f"{side}.halting_unit.linear.bias"][0]
            for b, i in list(going):
                now[b, i] = new[b, i]
                p = torch.sigmoid((normed[b, i] * weight).sum() + offset)
                if used[b, i] + p < self.model.rule.threshold and t < self.model.rule.max_depth:
                    mixed[b, i] = mixed[b, i] + p * now[b, i]
                    used[b, i] = used[b, i] + p
                else:
                    remainder[b, i] = 1 - used[b, i]
                    mixed[b, i] = mixed[b, i] + remainder[b, i] * now[b, i]
                    steps[b, i] = t
                    going.remove((b, i))
        cost = [steps[node] + remainder[node] for node in nodes]
        states = self._norm(f"{side}.norm", self._padded(mixed, lens))
        return states, [steps[node] for node in nodes], cost

    # ------------------------------------------------------------------ their parts

    def _encoder_layer(self, name, x, seen):
        x = x + self._attention(f"{name}.self_block", "ee", x, seen)
        return x + self._feed_forward(f"{name}.ff_block", x)

    def _decoder_layer(self, name, y, seen, memory):
        y = y + self._attention(f"{name}.self_block", "dd", y, seen)
        y = y + self._attention(f"{name}.cross_block", "ed", y, memory)
        return y + self._feed_forward(f"{name}.ff_block", y)

    def _attention(self, name, kind, x, seen):
        """(B, queries, M) and (B, keys, M) -> (B, queries, M)."""
        to_q, to_k, to_v = self.weights[f"{name}.attn.qkv.weight"].split(self.dim)
        x = self._norm(f"{name}.norm", x)
        if kind != "ed":  # the encoder's states are normed already
            seen = self._norm(f"{name}.norm", seen)
        width = self.dim // self.h
        heads = []
        for a in range(self.h):
            part = slice(a * width, (a + 1) * width)
            q, k, v = x @ to_q[part].T, seen @ to_k[part].T, seen @ to_v[part].T
            score = q @ k.transpose(1, 2) / math.sqrt(width)
            if self.biases[kind] is not None:
                score = score + self.biases[kind][:, a]
            mask = self.masks[kind]
            lowest = torch.finfo(score.dtype).min
            heads.append((torch.softmax(score.masked_fill(~mask, lowest), -1) * mask) @ v)
        return torch.cat(heads, -1) @ self.weights[f"{name}.attn.out.weight"].T

    def _feed_forward(self, name, x):
        x = self._linear(f"{name}.ff.inner", self._norm(f"{name}.norm", x))
        return self._linear(f"{name}.ff.outer", x.clamp(min=0))

    def _linear(self, name, x):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def _norm(self, name, x):
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return centred * scale * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def _embed(self, name, ids):
        table = self.weights[f"{name}.weight"] * math.sqrt(self.dim)
        longest = max(len(sample) for sample in ids)
        rows = [F.pad(table[sample], (0, 0, 0, longest - len(sample))) for sample in ids]
        return torch.stack(rows)

    def _positions(self, ids):
        longest = max(len(sample) for sample in ids)
        codes = [sinusoid(position, self.dim) for position in range(longest)]
        return torch.tensor(codes, dtype=self.dtype)

    # ------------------------------------------------------------------ padding

    def _padded(self, nodes, lens):
        """{(sample, position): (M,)} -> (B, longest, M)."""
        samples = [torch.stack([nodes[b, i] for i in range(size)]) for b, size in enumerate(lens)]
        return torch.stack([F.pad(s, (0, 0, 0, max(lens) - len(s))) for s in samples])

    def _rows(self, padded, lens):
        return torch.cat([sample[:size] for sample, size in zip(padded, lens, strict=True)])


def pad(matrices):
    """Matrices (…, queries, keys) of different sizes -> (B, …, most queries, most keys)."""
    queries = max(matrix.shape[-2] for matrix in matrices)
    keys = max(matrix.shape[-1] for matrix in matrices)
    return torch.stack(
        [
            F.pad(matrix, (0, keys - matrix.shape[-1], 0, queries - matrix.shape[-2]))
            for matrix in matrices
        ]
    )
