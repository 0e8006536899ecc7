"""Updates AgileRL's ILQL on given transcripts, and prints how many tokens of the agent it learns from per second.

For returns.py, it learns the policy too, from given batches; then it answers contexts with logits and advantages.
Its heads of values are replaced by heads with one hidden layer, as ours are.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import torch
from agilerl.algorithms.ilql import ILQL
from agilerl.data.rl_data import DataPoint, RL_Dataset
from agilerl.modules.mlp import EvolvableMLP


class Tokens:
    """The part of a tokeniser that learning needs."""

    pad_token_id = 0

    def __init__(self, count: int) -> None:
        """`count`: tokens of the vocabulary."""
        self.num_tokens = lambda: count


class Transcripts(RL_Dataset):
    """For `collate` alone, which makes batches."""

    def __iter__(self) -> Any:
        raise NotImplementedError


def make_points(file: str) -> list[DataPoint]:
    """An item for each transcript: states and actions are the places before the agent's tokens."""
    saved, points = np.load(file), []
    arrays = [saved[name] for name in ("tokens", "lengths", "is_action", "reward")]
    for tokens, length, is_action, reward in zip(*arrays, strict=True):
        places = np.flatnonzero(is_action).tolist()
        last = int(length) - 1
        ends = [0] * len(places) + [1]
        points.append(
            DataPoint("", tokens[: last + 1].tolist(), [*places, last], places, reward[places].tolist(), ends,
                      [last], [], [], [1])
        )  # fmt: skip
    return points


def make_agent(task: dict) -> ILQL:
    """A new agent."""
    width, vocabulary = task["width"], task["vocabulary"]
    model = {
        "arch": "gpt", "vocab_size": vocabulary, "n_layer": task["layers"], "n_embd": width, "n_head": task["heads"],
        "dim_feedfwd": 4 * width, "block_size": task["longest"], "activation": "GELU", "dropout": 0.0,
        "layer_norm_eps": 1e-5, "min_layers": 1, "max_layers": 16, "bias": True,
    }  # fmt: skip
    agent = ILQL(
        Transcripts(Tokens(vocabulary), None, task["longest"]), model, lr=task["learning_rate"], gamma=task["discount"],
        tau=task["expectile"], alpha=task["polyak"],
    )  # fmt: skip
    for name in ("v", "q", "q2", "target_q", "target_q2"):
        outputs = 1 if name == "v" else vocabulary
        setattr(agent, name, EvolvableMLP(width, outputs, hidden_size=[2 * width], layer_norm=False))
    agent.hard_update()  # copies them to the targets
    agent.optimizer = torch.optim.AdamW(agent.parameters(), lr=task["learning_rate"], weight_decay=0.0)
    return agent


def update(agent: ILQL, items: list[DataPoint], task: dict, cloning: float) -> int:
    """One update; returns how many of the agent's tokens it has learnt from."""
    loss, *_ = agent.get_loss(
        agent.dataset.collate(items, "cpu"), awac_weight=cloning, v_loss_weight=1.0, q_loss_weight=1.0,
        cql_loss_weight=task["conservative_weight"],
    )  # fmt: skip
    agent.optimizer.zero_grad()
    loss.backward()
    agent.optimizer.step()
    agent.soft_update()
    return sum(len(item.action_idxs) for item in items)


def measure(agent: ILQL, points: list[DataPoint], task: dict) -> None:
    """Prints the rate."""
    rng = np.random.default_rng(0)

    def learn() -> int:
        items = [points[number] for number in rng.integers(len(points), size=task["rows"])]
        return update(agent, items, task, cloning=0.0)

    for _ in range(3):
        learn()
    done, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < task["seconds"]:
        done += learn()
    print(json.dumps({"rate": done / passed}), flush=True)


@torch.no_grad()
def answer(agent: ILQL, contexts: list[list[int]]) -> dict:
    """What the agent would write next: the policy's logits, and Q - V."""
    longest = max(map(len, contexts))
    tokens = torch.tensor([context + [0] * (longest - len(context)) for context in contexts])
    last = torch.tensor([[len(context) - 1] for context in contexts])
    found = agent(tokens, last, last)  # without a mask, as attention is causal
    logits = found["logits"].gather(1, last[..., None].expand(-1, -1, found["logits"].shape[-1]))[:, 0]
    return {"logits": logits.tolist(), "advantage": (found["target_qs"][:, 0] - found["target_vs"]).tolist()}


def main(task: dict) -> None:
    """Learns."""
    torch.manual_seed(task.get("seed", 0))
    agent, points = make_agent(task), make_points(task["transcripts"])
    if "seconds" in task:
        measure(agent, points, task)
        return
    for batch in np.load(task["transcripts"])["batches"]:
        update(agent, [points[number] for number in batch], task, cloning=1.0)
    agent.eval()
    for line in sys.stdin:
        print(json.dumps(answer(agent, json.loads(line))), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
