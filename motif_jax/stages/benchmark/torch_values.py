"""ILQL's update in plain PyTorch, where that is installed, to compare with: an episode a row, padded to the longest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from motif_jax.transcripts.render import Renderer


def torch_values(
    renderer: Renderer, batch: int, longest: int, *, vocabulary: int, width: int, layers: int, heads: int
) -> Callable[[], int]:
    """A function that makes one update and returns how many tokens of the agent it has learnt from.

    Args:
      renderer: of the transcripts; `batch` episodes are learnt from at a time.
      batch: rows.
      longest: tokens of an episode, at most.
      vocabulary, width, layers, heads: of the language model.
    """
    import copy

    import torch
    from torch import nn

    def make_trunk() -> nn.ModuleDict:
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, nn.functional.gelu, batch_first=True, norm_first=True
        )
        return nn.ModuleDict({
            "tokens": nn.Embedding(vocabulary, width), "places": nn.Embedding(longest, width),
            "blocks": nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False),
        })  # fmt: skip

    def make_head(outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, outputs))

    def hidden(trunk: nn.ModuleDict, tokens: torch.Tensor) -> torch.Tensor:
        x = trunk["tokens"](tokens) + trunk["places"](torch.arange(tokens.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return trunk["blocks"](x, mask=mask, is_causal=True)

    trunk, v, qs = make_trunk(), make_head(1), nn.ModuleList([make_head(vocabulary), make_head(vocabulary)])
    target: Any = copy.deepcopy(nn.ModuleDict({"trunk": trunk, "qs": qs})).requires_grad_(False)
    learnt = nn.ModuleDict({"trunk": trunk, "v": v, "qs": qs})
    optimizer = torch.optim.AdamW(learnt.parameters(), lr=1e-3)
    slow: list[torch.Tensor] = [*target.parameters()]
    fast: list[torch.Tensor] = [*trunk.parameters(), *qs.parameters()]
    rng = np.random.default_rng(0)

    def update() -> int:
        rows = renderer.rows(rng.integers(len(renderer.lengths), size=batch), longest)
        tokens = torch.from_numpy(rows.tokens).long()
        mask, reward = torch.from_numpy(rows.is_action), torch.from_numpy(rows.reward)
        action = tokens.roll(-1, 1)[..., None]
        following, ended = next_decision(rows.is_action, (rows.segments > 0).sum(1) - 1)
        x = hidden(trunk, tokens)
        with torch.no_grad():
            slow_x = hidden(target["trunk"], tokens)
            goal = torch.minimum(*[q(slow_x).gather(-1, action)[..., 0] for q in target["qs"]])
        value = v(x)[..., 0]
        y = reward + 0.99 * (1 - torch.from_numpy(ended)) * value.detach().gather(1, torch.from_numpy(following))
        loss = ((0.7 - (goal < value).float()).abs() * (goal - value) ** 2)[mask].mean()
        for q in qs:
            all_values = q(x)
            loss = loss + ((y - all_values.gather(-1, action)[..., 0]) ** 2)[mask].mean()
            loss = loss + 0.01 * nn.functional.cross_entropy(all_values[mask], action[..., 0][mask])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learnt.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(slow, fast, 0.005)
        return int(mask.sum())

    return update


def next_decision(is_action: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each position of rows of one episode: that of the next decision, or the last; and whether there is none."""
    size = is_action.shape[1]
    at = np.where(is_action, np.arange(size), size)
    after = np.concatenate([at[:, 1:], np.full((len(at), 1), size)], 1)
    following = np.minimum.accumulate(after[:, ::-1], 1)[:, ::-1]
    ended = following == size
    return np.minimum(following, last[:, None]), ended.astype(np.float32)
