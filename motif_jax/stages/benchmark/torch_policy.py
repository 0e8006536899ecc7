"""The learner's work in plain PyTorch, where that is installed, to compare with."""

from __future__ import annotations

import time


def torch_learner(batch_size: int, rollout: int) -> float:
    """Steps per second of the reference network in PyTorch: forward, backward and Adam, on a picture that is there."""
    import torch
    from torch import nn

    rows = batch_size // rollout
    image = nn.Sequential(
        nn.Conv2d(3, 32, 8, 4), nn.ELU(), nn.Conv2d(32, 64, 4, 2), nn.ELU(), nn.Conv2d(64, 128, 3, 2), nn.ELU(),
        nn.Flatten(), nn.Linear(1152, 512), nn.ELU(),
    )  # fmt: skip
    vector = nn.Sequential(nn.Linear(27, 128), nn.ELU(), nn.Linear(128, 128), nn.ELU())
    message = nn.Sequential(nn.Linear(256, 128), nn.ELU(), nn.Linear(128, 128), nn.ELU())
    core, heads = nn.GRU(795, 512), nn.Linear(512, 24)
    parts = nn.ModuleList([image, vector, message, core, heads])
    optimizer = torch.optim.Adam(parts.parameters(), lr=1e-4)
    pixels, line, text = torch.rand(batch_size, 3, 72, 72), torch.rand(batch_size, 27), torch.rand(batch_size, 256)
    start = time.perf_counter()
    features = torch.cat([image(pixels), vector(line), line, message(text)], -1)
    loss = heads(core(features.reshape(rollout, rows, -1))[0]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return batch_size / (time.perf_counter() - start)
