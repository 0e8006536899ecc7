"""Runs the arms of config.py, in the order of seeds, so that each stop leaves a balanced table.

    python examples/headline/run.py --model=qwen2.5-coder-0.5b-instruct-q4_k_m.gguf --home=runs/headline
    python examples/headline/compare.py runs/headline/rows.csv docs/results/headline.svg    # at any time

Killed, the same command goes on; finished rows are left out. HOME/rows.csv gets a row for each arm, seed and number of
steps, and one for the rules of the NetHack Challenge at the end. For each seed and judge, pairs are collected and
labelled and a reward is learnt once, for both arms that have it; a model's ratings are kept in HOME/answers for all
seeds. Random play has rows of its own. `cpu_s` is the CPU time of the training so far, without killed processes.
"""

import argparse
import csv
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from config import ARMS

from motif_jax.envs.nethack.engine import WHEEL_LIBRARY, find_library
from motif_jax.files import checkpoint_steps, read_lines
from motif_jax.pages.players import read_results
from motif_jax.system.machine import describe

ROOT = Path(__file__).parents[2]
ROWS, COST = "rows.csv", "cost.csv"
POINTS = (2_000_000, 5_000_000, 10_000_000, 20_000_000)  # steps after which agents are evaluated
FIGURES = ("score", "max_depth", "experience_level", "turns", "progression")  # means over games
COLUMNS = (
    "arm", "seed", "protocol", "steps", "games", *FIGURES, "score_median", "deaths", "ends", "lag_mean", "lag_max",
    "cpu_s", "commit", "engine", "machine",
)  # fmt: skip
RANDOM, TASK, CHALLENGE = "random", "task", "challenge"


def launch(options, arm, seed, folder, stage, *flags):
    """Runs stages of an arm's experiment in `folder`; raises CalledProcessError if they fail."""
    command = [sys.executable, "-m", "motif_jax.launch", f"--config={ROOT}/examples/headline/config.py:{arm}"]
    command += [f"--workdir={folder}", f"--config.seed={seed}", f"--stage={stage}", *flags, *options.values]
    folder.mkdir(parents=True, exist_ok=True)
    before = cpu_seconds()
    try:
        subprocess.run(command, cwd=ROOT, check=True)
    finally:
        with open(folder / COST, "a") as file:
            file.write(f"{stage},{cpu_seconds() - before:.1f}\n")


def cpu_seconds():
    """CPU time of the processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def learn_reward(options, arm, seed):
    """Flags with the reward that an arm learns from, which is learnt where it is missing; none for other arms."""
    judge = ARMS[arm][1]
    if not judge:
        return []
    folder, flags = options.home / f"reward-{judge}-{seed}", [f"--config.annotate.cache_dir={options.home}/answers"]
    if judge == "model":
        flags.append(f"--config.annotate.model={options.model}")
    launch(options, arm, seed, folder, "collect,annotate,train_reward", *flags)
    return [f"--config.policy.reward_dir={folder}"]


def run_arm(options, arm, seed):
    """Trains and evaluates the agent of an arm and a seed, in HOME/ARM-SEED."""
    done = {key_of(row) for row in read_rows(options.home / ROWS)}
    points = [(TASK, steps) for steps in options.points] + [(CHALLENGE, options.points[-1])]
    if arm == RANDOM:
        points = [(TASK, 0), (CHALLENGE, 0)]
    due = [(protocol, steps) for protocol, steps in points if (arm, seed, protocol, steps) not in done]
    if not due:
        return
    folder, base = options.home / f"{arm}-{seed}", "score" if arm == RANDOM else arm
    given = learn_reward(options, base, seed)
    for protocol, steps in due:
        player = RANDOM
        if arm != RANDOM:
            checkpoints = folder / "policy/checkpoints"
            if max(checkpoint_steps(checkpoints), default=0) < steps:
                until = f"--config.policy.train_for_env_steps={steps}"
                launch(options, base, seed, folder, "train_policy", until, *given)
            player = f"@{min(step for step in checkpoint_steps(checkpoints) if step >= steps)}"
        games = options.games if protocol == TASK else options.challenge_games
        flags = [f"--config.evaluate.{name}={value}" for name, value in
                 {"policy": player, "baselines": "", "protocol": protocol, "episodes": games}.items()]  # fmt: skip
        launch(options, base, seed, folder, "evaluate", *flags, *given)
        row = {"arm": arm, "seed": seed, "protocol": protocol, "steps": steps}
        append(options.home / ROWS, row | figures_of(folder, player, protocol))


def figures_of(folder, player, protocol):
    """The figures of an evaluated player, and how and where it was trained."""
    suffix = "" if protocol == TASK else f"-{protocol}"
    name = f"policy-{player[1:]}" if player != RANDOM else RANDOM
    summary = read_results(folder)[f"{name}{suffix}"]
    episodes = read_lines(folder / f"evaluate/{name}{suffix}/episodes.jsonl")
    died = [one["end_status"] == "death" for one in episodes if one["episode"] < summary["episodes"]]
    row = {name: summary["figures"][name]["mean"] for name in FIGURES} | {"games": summary["episodes"]}
    row |= {"score_median": summary["figures"]["score"]["median"], "ends": json.dumps(summary["ends"])}
    row["deaths"] = sum(died) / len(died)
    if player != RANDOM:
        reached = int(player[1:])
        metrics = [one for one in read_lines(folder / "policy/metrics.jsonl") if one["env_steps"] <= reached]
        row |= {"lag_mean": statistics.mean(one["train/lag_mean"] for one in metrics)}
        row |= {"lag_max": max(one["train/lag_max"] for one in metrics)}
        row["cpu_s"] = round(sum(seconds for stage, seconds in costs_of(folder) if stage == "train_policy"))
    machine = describe()
    row |= {"commit": machine.get("commit", ""), "machine": f"{machine['processor']}, {machine['cores']} cores"}
    row["engine"] = "wheel" if find_library().path == WHEEL_LIBRARY.path else "built"
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}


def costs_of(folder):
    """The stages that were run, with their CPU seconds."""
    lines = (line.rpartition(",") for line in (folder / COST).read_text().splitlines())
    return [(stage, float(seconds)) for stage, _, seconds in lines]


def read_rows(file):
    """The rows of a file; none if there is no file."""
    if not file.exists():
        return []
    with open(file, newline="") as lines:
        return [row | {"seed": int(row["seed"]), "steps": int(row["steps"])} for row in csv.DictReader(lines)]


def key_of(row):
    """What tells a row from others."""
    return row["arm"], row["seed"], row["protocol"], row["steps"]


def append(file, row):
    """Adds a row to the file, which gets a header first."""
    rows = [*read_rows(file), row]
    with open(file.with_suffix(".new"), "w", newline="") as out:
        writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    file.with_suffix(".new").rename(file)
    what = f"{row['arm']}, seed {row['seed']}, {row['protocol']} after {row['steps']:,} steps"
    print(f"headline: {what}: score {row['score']:.1f}, level {row['max_depth']:.2f}", flush=True)


def main():
    """The command."""
    names, numbers = (lambda text: text.split(",")), (lambda text: [int(number) for number in text.split(",")])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--home", type=lambda text: Path(text).absolute(), default=ROOT / "runs/headline")
    parser.add_argument("--model", type=os.path.abspath, help="that rates: a GGUF file or a directory")
    parser.add_argument("--arms", type=names, default=[*ARMS, RANDOM])
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3, 4, 5])
    parser.add_argument("--points", type=numbers, default=POINTS, help="steps after which agents are evaluated")
    parser.add_argument("--games", type=int, default=200, help="of an evaluation")
    parser.add_argument("--challenge_games", type=int, default=100, help="by the rules of the Challenge, at the end")
    options, options.values = parser.parse_known_args()  # others go to the program, as --config.reward.num_epochs=1
    if not options.model and any(ARMS[arm][1] == "model" for arm in options.arms if arm != RANDOM):
        parser.error("the arms of the model need its file or directory, --model")
    failed = []
    for seed, arm in itertools.product(options.seeds, options.arms):
        try:
            run_arm(options, arm, seed)
        except subprocess.CalledProcessError as error:  # which has said why
            failed.append(f"{arm}-{seed}")
            print(f"headline: {failed[-1]} ended with status {error.returncode}", flush=True)
    if failed:
        sys.exit(f"headline: not finished: {', '.join(failed)}; the same command goes on")


if __name__ == "__main__":
    main()
