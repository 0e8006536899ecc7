"""A workdir as the stages leave it, small and made by hand where making it for real would take long."""

import json
from pathlib import Path

import numpy as np
from conftest import get_config, run_stage
from small_dataset import EVENTS, random_pairs, write_dataset

from motif_jax.captions import encode
from motif_jax.envs.worlds import make_world
from motif_jax.files import write_json, write_lines
from motif_jax.pages.figures import WATCHED, Watched, label
from motif_jax.pages.players import read_players
from motif_jax.preferences.store import PairDataset
from motif_jax.replays.replay import COLUMNS, ROWS, Replay, save_replay
from motif_jax.rewards.preference import Split
from motif_jax.rewards.statistics import share_interval
from motif_jax.rewards.statistics import summarise_values as moments
from motif_jax.run import Run
from motif_jax.stages import annotate
from motif_jax.stages.collect import report_pairs
from motif_jax.stages.evaluate import rules_of
from motif_jax.stages.evaluate.results import packed_replay, report_evaluation
from motif_jax.stages.train_policy.page import report_training
from motif_jax.stages.train_reward.fitting import LabelledPairs, write_page

STEPS = 120
HERO = "Agent the Candidate            St:17 Dx:14 Co:11 In:13 Wi:11 Ch:9 Neutral S:101"
MARK = (5, 7)  # of the last frame: a square of reversed yellow
MACHINE = {"processor": "A fine processor", "cores": 2, "memory_gib": 8, "versions": {"motif_jax": "0.1.0"}}


def write_workdir(path: Path, goal: str = "gold", events: tuple[str, ...] = EVENTS, cause: str = "killed by a newt"):
    """Everything; `events` are the messages, `cause` is how an episode ended."""
    write_pairs(path, events)
    config = get_config("quickstart.py", annotate__goal=goal, reward__annotators=f"lexicon_msg_{goal}")
    run_stage(annotate, config, path)
    write_reward(path, f"lexicon_msg_{goal}")
    write_policy(path, config)
    for name, step, score in (("policy-2000", 2000, 30.0), ("random", 0, 10.0)):
        write_player(path, name, step, score, events, cause)
    tell(path)
    return path


def tell(path: Path) -> None:
    """Writes the sections of training and evaluation, as they do at their ends."""
    report_training(path)
    for name, player in (players := read_players(path)).items():
        folder = path / "evaluate" / name
        packed = [packed_replay(file, label(player)) for file in sorted(folder.glob("replays/*"))]
        Run(path).stage("evaluate", f"evaluate/{name}").write(WATCHED, Watched(tuple(packed)))
    report_evaluation(path, players)


def write_pairs(path: Path, events: tuple[str, ...] = EVENTS) -> None:
    dataset = write_dataset(path / "dataset", random_pairs(200, events=events))
    np.save(dataset / "info/max_depth.npy", np.random.default_rng(0).integers(1, 4, (200, 2)))
    record = {"num_pairs": 200, "task": "score", "episodes": 9, "steps": 5000, "collector": "explorer", "seed": 777,
             "distinct_captions": len(events), "versions": {"nle": "1.3.0"}}  # fmt: skip
    write_json(dataset / "dataset.json", record)
    report_pairs(path)


def write_reward(path: Path, annotator: str) -> None:
    """A reward that likes captions by their number."""
    dataset = PairDataset(path / "dataset")
    table, ids = dataset.captions()
    values = np.linspace(-2, 3, len(table)).astype(np.float32)
    statistics = moments(values, table.counts)
    row = {"accuracy": 0.9, "sided": 40, "unseen_accuracy": 0.8, "unseen_sided": 5, "score_accuracy": 0.6}
    row["accuracy_low"], row["accuracy_high"] = share_interval(0.9, 40)
    history = [{"epoch": epoch, "loss": 0.69 - 0.1 * epoch, "train_loss": 0.6, **row} for epoch in range(3)]
    record = {"annotators": {annotator: 1.0}, "epoch": 2, "parameters": 123456, "history": history, "machine": MACHINE}
    record["statistics"] = statistics.record()
    stage = Run(path).stage("train_reward", "reward")
    ids, target = np.asarray(ids), np.linspace(0, 1, len(ids))
    data = LabelledPairs(*[None] * len(LabelledPairs._fields))._replace(
        dataset=dataset, table=table, ids=ids, target=target, counts=table.counts,
        split=Split(np.arange(100), np.arange(100, 200)),
    )  # fmt: skip
    write_page(stage, record, data, values, values[ids])
    write_json(path / "reward/statistics.json", record)


def write_policy(path: Path, config) -> None:
    rows = [
        {"env_steps": 1000 * at, "seconds": 2.0 * at, "steps_per_s": 500.0, "episode/return": 0.1 * at,
         "episode/intrinsic_return": np.sqrt(at), "episode/score": float(at), "episode/gold": None,
         "episode/max_depth": 1.5, "episode/success": 0.0, "time/policy": 0.5, "time/wait_for_workers": 0.25,
         "time/update": 0.1, "reward/learnt_share": 0.2, "train/mine": 0.5 * at, "memory_mib": 500, "episode/all": at}
        for at in range(1, 31)
    ]  # fmt: skip
    write_lines(path / "policy/metrics.jsonl", rows)
    write_json(path / "policy/config.json", json.loads(config.to_json()))
    done = {"env_steps": 30000, "seconds": 60.0, "episodes": 30, "machine": MACHINE}
    write_json(path / "policy/summary.json", done)


def write_player(path: Path, name: str, step: int, score: float, events: tuple[str, ...], cause: str) -> None:
    folder, rng = path / "evaluate" / name, np.random.default_rng(step)
    rows = [
        {"episode": at, "steps": STEPS, "episode_return": score + at, "end_status": "death" if at else "aborted",
         "success": False, "score": score + at, "turns": 50, "depth": 1, "max_depth": 1 + at % 2, "gold": at,
         "experience_level": 1, "scout": 100, "ascended": False, "intrinsic_return": float(rng.normal(score / 5)),
         "cause": cause if at else "", "did": {"beats a monster": at, "picks up gold": int(score)}}
        for at in range(10)
    ]  # fmt: skip
    about = {"name": name, "path": "." if step else "", "step": step, "greedy": False, "reward": "abc", "goal": "gold"}
    world = make_world({"task": "score"})
    about |= {"episodes": 10, "task": "score", "replays": {"best": 1}, "seed": 0, "families": ()}
    about |= {
        "aims": sorted(rules_of(world).aims),
        "measures": world.figures,
        "meanings": [one._asdict() for one in world.meanings],
    }
    write_lines(folder / "episodes.jsonl", rows)
    write_json(folder / "summary.json", about)
    save_replay(folder / "replays/episode-00001.npz", make_replay(name, events, rows[1], ["best"]))


def make_replay(player: str, events: tuple[str, ...], row: dict, chosen: list[str], steps: int = STEPS) -> Replay:
    rng = np.random.default_rng(len(player))
    chars = np.full((steps + 1, ROWS, COLUMNS), ord(" "), np.uint8)
    colors = np.zeros((steps + 1, ROWS, COLUMNS), np.uint8)
    cursor = np.full((steps + 1, 2), 10, np.uint8)
    message = np.zeros((steps + 1, 256), np.uint8)
    for at in range(steps + 1):
        column = at % COLUMNS
        chars[at, 10], colors[at, 10] = ord("."), 7
        chars[at, 10, column], colors[at, 10, column], cursor[at, 1] = ord("@"), 15, column
        status = f"Dlvl:1 $:{at} HP:{14 - at % 9}(14) Pw:2(2) AC:6 Xp:1/0 T:{at} Hungry"
        for line, text in ((22, HERO), (23, status)):
            chars[at, line, : len(text)], colors[at, line, : len(text)] = np.frombuffer(text.encode(), np.uint8), 7
        if at % 5 == 0:
            message[at] = encode(events[at // 5 % len(events)])
    chars[-1][MARK], colors[-1][MARK] = ord(" "), 11 + 16
    z = rng.normal(0, 0.3, steps).astype(np.float32)
    z[30] = 4.0  # this action is paid most
    about = {"player": player, "task": "score", "episode": 1, "chosen": chosen, "end": row["end_status"],
             "cause": row["cause"], "action_names": ["north", "east"], "threshold": 0.0, "count_exponent": 3.0,
             "goal": "gold", "figures": row}  # fmt: skip
    return Replay(
        about, chars, colors, cursor, message, np.ones(steps + 1, np.int32), np.arange(steps, dtype=np.int32) % 2,
        np.where(np.arange(steps) % 40 == 0, 1.0, -0.01).astype(np.float32), z, np.maximum(z, 0),
        np.linspace(1, 0, steps, dtype=np.float32), np.full(steps, 0.5, np.float32),
    )  # fmt: skip
