"""Do agents learn from programs by a small language model?

    python examples/code_rewards/study.py all --model=FILE.gguf --home=runs/study    # one core; killed, it goes on
    python examples/code_rewards/study.py row doorkey diagnoses 1 --model=FILE.gguf --home=runs/study
    python examples/code_rewards/study.py page --home=runs/study; python tests/result_tables.py    # into docs/results/

A row writes programs, trains PPO on the best one beside the game's sparse reward, and evaluates it on 100 games, in
HOME/LEVEL-ARM-SEED. The arms differ in who writes. Where no reward is found, the agent has the sparse reward alone.
Games and learner take turns in one process of one thread, so a training can be repeated exactly. `page` adds HOME's
rows to rows.csv beside this file, and `all` leaves out those that are there (--rows= names another file).
"""

import argparse
import csv
import json
import os
import resource
import runpy
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import llguidance
import numpy as np
from llguidance.gbnf_to_lark import any_to_lark

from motif_jax import experiment
from motif_jax.config.file import find_config
from motif_jax.contrib.code_rewards.grammar import FUNCTIONS, OPERATORS, as_ebnf
from motif_jax.contrib.code_rewards.guide import is_plain
from motif_jax.contrib.code_rewards.names import TEXTS
from motif_jax.contrib.code_rewards.writers import read_reply
from motif_jax.files import read_json, write_json
from motif_jax.pages.players import read_results
from motif_jax.structs import UserError
from motif_jax.system.startup import set_up_process

ROOT = Path(__file__).parents[2]
LEVELS = {  # world, steps of an episode, program by hand
    "doorkey": ("examples.code_rewards.worlds:DoorKey8", 640, ROOT / "examples/rewards/doorkey.reward"),
    "corridor": ("examples.code_rewards.worlds:KeyCorridor", 270, ROOT / "examples/rewards/keycorridor.reward"),
}
ARMS = {  # the writer in words, and values of code_rewards; None: no program is written
    "bare": ("nobody: the game's own reward alone", None),
    "hand": ("by hand", None),
    "scripted": ("the templates", {"writer": "scripted"}),
    "random": ("random programs of the grammar", {}),
    "first": ("the model under the grammar, first round", {"writer": "model", "revisions": 0}),
    "free_first": ("the model without the grammar, first round", {"writer": "model", "revisions": 0}),
    "diagnoses": ("the model under the grammar, after diagnoses", {"writer": "model"}),
    "free": ("the model without the grammar, after diagnoses", {"writer": "model"}),
    "metrics": ("the model under the grammar, told metrics alone", {"writer": "model", "feedback": "metrics"}),
}
FREE = ("free_first", "free")
LIKE = {"first": "diagnoses", "metrics": "diagnoses", "free_first": "free"}  # whose first round is the same
ROWS = Path(__file__).with_name("rows.csv")
PAGE = ROOT / "docs/results/code-rewards.md"
HERE = "[code_study.csv](code_study.csv)"  # before the table in the page
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
FIGURES = {  # of a row, as the table calls them
    "programs": "programs", "parse": "parse", "pay": "pay", "agreement": "agreement", "found": "reward found",
    "success": "success", "cpu_s": "CPU seconds",
}  # fmt: skip
PPO = {  # the quickstart's passes once over each batch: KeyCorridor was not learnt so from the program by hand
    "num_epochs": 4, "num_minibatches": 2, "clip_ratio": 0.2, "learning_rate": 5e-4, "exploration_coefficient": 0.03,
}  # fmt: skip
T95 = {3: 4.30, 4: 3.18, 5: 2.78}  # of Student's distribution, by the number of seeds


# ---- writers


class Free:
    """In place of a `ProgramGuide`: any token may follow."""

    def __init__(self, guide, tokeniser):
        self.ends, self._tokeniser = guide.ends, tokeniser
        self._all = np.array([piece != "" for piece in guide.pieces])
        self._all[self.ends] = True

    def begin(self, texts):
        """Nothing changes."""

    def allowed(self, number, tokens):
        """All tokens but special ones."""
        return self._all

    def text(self, tokens):
        """What was written, or the part of it between fences."""
        return read_reply({"choices": [{"message": {"content": self._tokeniser.decode(tokens)}}]})


class RandomWriter:
    """Writes random programs of the grammar: at each place, each word has the same chance."""

    def __init__(self, readable, seed):
        self._readable, self._chances = readable, np.random.default_rng(seed)
        self._grammar = any_to_lark(as_ebnf(readable, narrow=True))
        self._tokenizer = llguidance.LLTokenizer("byte")

    def propose(self, brief, earlier, number):
        """A program, whose texts are captions."""
        # A text is read by `says` alone; its name may be the beginning of another one.
        names = [f"{name}," if one.type == TEXTS else name for name, one in self._readable.entries.items()]
        numbers = [f"{place * one:.2g}" for place in (0.1, 1) for one in range(10)]
        signs = [*(f" {name} " for name in OPERATORS), "not ", "-", "(", ")", ","]
        quoted = [f'"{caption}"' for caption in brief.captions if is_plain(caption)]
        words = [word.encode() for word in (*names, *FUNCTIONS, *numbers, *signs, *quoted)]
        matcher, text = llguidance.LLMatcher(self._tokenizer, self._grammar), b""
        while True:
            good = [word for word in words if matcher.validate_tokens([*word]) == len(word)]
            good += [b""] * matcher.is_accepting()
            word = good[self._chances.integers(len(good))]
            if not word:
                return text.decode()
            matcher.consume_tokens([*word])
            text += word

    def close(self):
        """Nothing to release."""


def use_writer(arm, seed):
    """Makes the stage write_reward write as this arm does, where its config cannot say it."""
    from motif_jax.contrib.code_rewards import job, writers

    class FreeWriter(writers.GuidedWriter):
        """The model without the grammar."""

        def __init__(self, *args):
            super().__init__(*args)
            self.guide = Free(self.guide, self._language.tokeniser)

    if arm in FREE:
        writers.GuidedWriter = FreeWriter
    if arm == "random":
        job.open_writer = lambda config, readable: RandomWriter(readable, seed)


# ---- a row


def config_of(options):
    """The experiment of a row, without the reward."""
    world, limit, _ = LEVELS[options.level]
    config = runpy.run_path(find_config("code_quickstart"))["get_config"]("doorkey")
    config.seed = options.seed
    config.env.update({"world": world, "max_episode_steps": limit})
    sizes = {"steps": options.record, "proposals": options.proposals, "revisions": options.revisions}
    config.code_rewards.update(sizes | (ARMS[options.arm][1] or {}))
    if config.code_rewards.revisions:
        config.code_rewards.train_for_env_steps, config.code_rewards.trainings = options.short, options.trainings
        config.code_rewards.chosen_by = "success,door"
    config.policy.update({
        "num_workers": 0, "games_per_worker": 32, "groups": 1, "synchronous": True, "extrinsic_coefficient": 1.0,
        "train_for_seconds": 0.0, "train_for_env_steps": options.steps, "tensorboard": False, **PPO,
    })  # fmt: skip
    config.evaluate.update({"num_workers": 0, "episodes": options.episodes, "baselines": "", "replays": ""})
    return config


def run_row(options):
    """Runs or resumes a row, and writes its row.json."""
    folder = options.home / f"{options.level}-{options.arm}-{options.seed}"
    if (folder / "row.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        config, row = config_of(options), {"level": options.level, "arm": options.arm, "seed": options.seed}
        row |= write_program(config, options, folder)
        if options.arm == "hand":
            config.policy.sources = f"code:{LEVELS[options.level][2]}"
        else:
            config.policy.sources = "code:write_reward" if row.get("found") else ""
        experiment.run(config.to_dict(), folder, ["train_policy", "evaluate"])
        summary = next(iter(read_results(folder).values()))
        row |= {"success": summary["figures"]["success"]["mean"], "steps": options.steps}
    finally:  # also of a part of the row
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        with open(folder / "cost.csv", "a") as file:
            file.write(f"{sum(one.ru_utime + one.ru_stime for one in used):.1f},{time.monotonic() - began:.1f}\n")
    costs = [tuple(map(float, line.split(","))) for line in (folder / "cost.csv").read_text().splitlines()]
    row |= {"cpu_s": round(sum(cpu for cpu, _ in costs)), "wall_s": round(sum(wall for _, wall in costs))}
    write_json(folder / "row.json", row)
    print(json.dumps(row))


def write_program(config, options, folder):
    """Writes the programs of a row; returns figures of them."""
    if ARMS[options.arm][1] is None:
        return {}
    if config.code_rewards.writer == "model":
        config.annotate.model = options.model
    use_writer(options.arm, options.seed)
    same = options.home / f"{options.level}-{LIKE.get(options.arm)}-{options.seed}/write_reward"
    if (same / "record.json").exists() and not (folder / "write_reward").exists():
        shutil.copytree(same / "round-0", folder / "write_reward/round-0")
    try:
        experiment.run(config.to_dict(), folder, ["write_reward"])
    except UserError as error:
        if "programs could be read" not in str(error):
            raise
        return {"programs": options.proposals, "parse": 0, "pay": 0, "found": 0, "best": str(error)}
    written = read_json(folder / "write_reward/record.json")
    programs = [one for rows in written["rounds"] for one in rows]
    return {
        "programs": len(programs), "parse": sum(not one["error"] for one in programs) / len(programs),
        "pay": sum(one.get("spread", 0) > 0 for one in programs) / len(programs),
        "agreement": written["agreement_on_others"], "found": int(written["found"]), "best": written["best"]["program"],
    }  # fmt: skip


def run_all(options):
    """Runs all rows that are not done, each in a process of its own: each arm once, then again with the next seed."""
    own = {"what", "level", "arm", "seed", "seeds", "rows"}
    flags = [f"--{name}={value}" for name, value in vars(options).items() if name not in own]
    done = {key_of(row) for row in read_rows(options.rows)}
    for level in [options.level] if options.level else LEVELS:
        for seed in range(1, options.seeds + 1):
            for arm in ARMS:
                row = [sys.executable, __file__, "row", level, arm, str(seed), *flags]
                if (level, arm, seed) not in done and (status := subprocess.run(row).returncode):
                    print(f"study: the row {level} {arm} {seed} ended with status {status}", flush=True)


def read_rows(file):
    """The rows that a file holds; none if there is no file."""
    if not file.exists():
        return []
    with open(file, newline="") as lines:
        return [{name: _value(text) for name, text in row.items() if text} for row in csv.DictReader(lines)]


def _value(text):
    try:
        return json.loads(text)
    except ValueError:  # a name or a program
        return text


def key_of(row):
    """What tells a row from others."""
    return row["level"], row["arm"], row["seed"]


def table_of(rows):
    """The table of these rows."""
    lines = [f"| level | writer | seeds | {' | '.join(FIGURES.values())} |", f"| --- | --- |{' ---: |' * 8}"]
    for level in LEVELS:
        for arm, (writer, _) in ARMS.items():
            group = [row for row in rows if (row["level"], row["arm"]) == (level, arm)]
            cells = [_cell([row[name] for row in group if row.get(name) == row.get(name) is not None],
                           name not in ("programs", "cpu_s")) for name in FIGURES]  # fmt: skip
            if group:
                lines.append(f"| {level} | {writer} | {len(group)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values, share):
    """The mean with its 95 % interval over seeds, that of a share cut at 0 and 1; one or two values as they are."""
    if len(values) not in T95:
        return ", ".join(f"{value:.3g}" for value in values) or "–"
    mean, half = statistics.mean(values), T95[len(values)] * statistics.stdev(values) / len(values) ** 0.5
    if share:
        return f"{mean:.3f} [{max(mean - half, 0):.2f}, {min(mean + half, 1):.2f}]"
    return f"{mean:.3g} [{mean - half:.3g}, {mean + half:.3g}]"


def write_page(options):
    """Adds HOME's rows to the file of rows, and replaces the table in the page of results."""
    new = [read_json(file) for file in options.home.glob("*/row.json")]
    rows = {key_of(row): row for row in [*read_rows(options.rows), *new]}
    with open(options.rows, "w", newline="") as file:
        columns = ["level", "arm", "seed", "steps", *FIGURES, "wall_s", "best"]
        out = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        out.writeheader()
        out.writerows(rows[key] for key in sorted(rows))
    text = PAGE.read_text()
    start = text.index("\n|", text.index(HERE)) + 1
    end = text.index("\n\n", start)
    PAGE.write_text(text[:start] + table_of([*rows.values()]) + text[end:])


def main():
    """The command."""
    set_up_process()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("row", "all", "page"))
    parser.add_argument("level", nargs="?", choices=[*LEVELS])
    parser.add_argument("arm", nargs="?", choices=[*ARMS])
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("--home", type=Path, default=Path("runs/study"))
    parser.add_argument("--rows", type=Path, default=ROWS, help="those of before")
    parser.add_argument("--model", default="smollm2", help="the model")
    parser.add_argument("--steps", type=int, default=500_000, help="of the training")
    parser.add_argument("--short", type=int, default=250_000, help="of each short training")
    parser.add_argument("--trainings", type=int, default=2, help="short ones per round")
    parser.add_argument("--record", type=int, default=40_000, help="steps of random play on which programs are tried")
    parser.add_argument("--proposals", type=int, default=8, help="programs per round")
    parser.add_argument("--revisions", type=int, default=2, help="rounds after the first")
    parser.add_argument("--episodes", type=int, default=100, help="of the evaluation")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", ONE_THREAD)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(options.home.absolute() / "compiled"))
    if options.what == "row":
        if options.seed is None:
            parser.error("a row is LEVEL ARM SEED")
        run_row(options)
    elif options.what == "all":
        run_all(options)
    else:
        write_page(options)


if __name__ == "__main__":
    main()
