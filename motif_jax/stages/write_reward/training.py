"""A short training with a program, in a workdir of its own, and what the agent then did beside random play."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from motif_jax.envs.protocols import TASK
from motif_jax.files import read_json, write_whole
from motif_jax.rewards.code.types import Program
from motif_jax.rewards.registry import BEST, WRITTEN
from motif_jax.stages import Stage, find_stage, untyped
from motif_jax.stages.evaluate.summary import SUMMARY
from motif_jax.stages.write_reward.section import WriteConfig

EPISODES = 40
MOST = 12  # figures that are told, those with the largest ratio first
UNTOLD = ("intrinsic_return",)


def stages_of(config: WriteConfig) -> list[tuple[Stage[Any], Any]]:
    """The stages of a training with a program alone, each with its config; the program is in the training's workdir."""
    policy = replace(
        config.policy, sources=f"code:{WRITTEN}", intrinsic_coefficient=0.0, extrinsic_coefficient=0.0, reward_dir="",
        options="", controller="", train_for_env_steps=config.write_reward.train_for_env_steps, train_for_seconds=0.0,
    )  # fmt: skip
    evaluate = replace(
        config.evaluate, policy="", beside="random", episodes=EPISODES, protocol=TASK, variations="", replays=""
    )
    short = untyped(replace(config, policy=policy, evaluate=evaluate))
    return [(stage, stage.view(short)) for stage in map(find_stage, ("train_policy", "evaluate"))]


def train(config: WriteConfig, program: Program, workdir: Path) -> dict[str, list[float]]:
    """Trains and evaluates, or goes on where a killed run was; means of figures, of the agent and of random play."""
    write_whole(workdir / WRITTEN / BEST, lambda file: file.write(program.text.encode()))
    for stage, view in stages_of(config):
        if not stage.is_complete(view, workdir):
            stage.run(view, workdir)
    found: dict[str, dict[str, float]] = {}
    for file in sorted((workdir / "evaluate").glob(f"*/{SUMMARY}")):
        summary: dict[str, Any] = read_json(file)
        means = {name: figure["mean"] for name, figure in summary["figures"].items() if figure}
        counts = {f"'{name}'": figure["mean"] for name, figure in summary["did"].items()}
        found["random" if file.parent.name == "random" else "agent"] = means | counts
    names = [name for name in found["agent"] | found["random"] if name not in UNTOLD]
    return {name: [found["agent"].get(name, 0.0), found["random"].get(name, 0.0)] for name in names}


def describe(figures: dict[str, list[float]], steps: int) -> str:
    """What came of a training, for the writer."""

    def change(name: str) -> float:
        agent, random = map(abs, figures[name])
        return (max(agent, random) + 1e-3) / (min(agent, random) + 1e-3)

    lines = [f"    {name}: {figures[name][0]:.3g} ({figures[name][1]:.3g})"
             for name in sorted(figures, key=change, reverse=True)[:MOST]]  # fmt: skip
    return "\n".join([f"an agent that learnt from it for {steps:,} steps, per episode (random play):", *lines])
