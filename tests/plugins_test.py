"""What others install is used by name, and what is wrong with it is told in one sentence."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from motif_jax import names, plugins, stages
from motif_jax.actors.pool import Pools
from motif_jax.files import read_lines
from motif_jax.pages.players import read_results
from motif_jax.plugins import Plugin
from motif_jax.stages import Experiment
from motif_jax.structs import UserError
from motif_jax.system.runs import Runner

ROOT = Path(__file__).parent.parent
STRANGER = {
    "pyproject.toml": """
        [project]
        name = "stranger"
        version = "1.0"
        [project.entry-points.motif_jax]
        stranger = "stranger:PLUGIN"
        [build-system]
        requires = ["setuptools"]
        build-backend = "setuptools.build_meta"
        """,
    "stranger/__init__.py": """
        from motif_jax.plugins import Plugin

        PLUGIN = Plugin(
            worlds={"yard": "stranger.parts:Yard"}, judges={"optimist": "stranger.parts:Optimist"},
            protocols={"short": "stranger.parts:SHORT"}, stages={"count_pairs": "stranger.parts:STAGE"},
            section="stranger.section:Section", decides=("collect",),
            training_hooks={"steps": "stranger.hook:Steps"}, api={"yard": "stranger.parts:Yard"},
            sources={"crumbs": "stranger.reward:CRUMBS"},
        )
        """,
    "stranger/section.py": """
        from dataclasses import dataclass
        from motif_jax.config.table import Whole, value

        @dataclass(frozen=True)
        class Section:
            "How the stranger counts."
            factor: int = value(3, Whole(1), "what the number is multiplied by", decides=True)
        """,
    "stranger/parts.py": """
        from motif_jax.annotation.backends import Rules
        from motif_jax.envs.protocols import ChangedGames
        from motif_jax.envs.toy import ToyWorld
        from motif_jax.pages.blocks import Paragraph
        from motif_jax.run import Run
        from motif_jax.stages import Experiment, Stage, exclusive_lock
        from motif_jax.system.errors import Limits

        class Yard(ToyWorld):
            name = "yard"

        class Optimist(Rules):
            pass

        SHORT = ChangedGames("short", "in three steps", {"max_episode_steps": 3})

        def run(config, workdir):
            import numpy as np
            pairs = len(np.load(workdir / "dataset/data/message.npy", mmap_mode="r"))
            (workdir / "counted.txt").write_text(str(pairs * config.plugins["stranger"].factor))
            stage = Run(workdir).stage("count_pairs", "counted")
            stage.section("Counted pairs", Paragraph(f"{pairs} pairs"), after="The reward")
            stage.report()

        STAGE = Stage(
            name="count_pairs", sections=(), config=Experiment, folders=lambda config, workdir: [],
            check=lambda config, workdir: [], run=run, lock=exclusive_lock, limits=Limits("", ""),
            is_complete=lambda config, workdir: (workdir / "counted.txt").exists(),
        )
        """,
    "stranger/reward.py": """
        from motif_jax.rewards.registry import SourceKind
        from motif_jax.rewards.source import RewardSource

        class Crumbs(RewardSource):
            def rewards(self, rollouts):
                return rollouts["reward"] * 0 + 1

        CRUMBS = SourceKind(path="stranger.reward:Crumbs", title="a crumb per step", needs_coefficient=False)
        """,
    "stranger/hook.py": """
        from motif_jax.pages.blocks import Paragraph
        from motif_jax.run import Run
        from motif_jax.stages.train_policy.hooks import TrainingHook

        class Steps(TrainingHook):
            "Counts the steps of the batches, and the rewards in their rollouts."
            def __init__(self, workdir):
                self.steps = self.rewards = 0
                self.stage = Run(workdir).stage("train_policy", "policy")

            @classmethod
            def begin(cls, watched):
                return cls(watched.folder.parent) if watched.config.plugins["stranger"].factor == 5 else TrainingHook()

            def keep(self, arrays, rewards):
                return arrays["reward"].size

            def after_update(self, done, params, batch, kept):
                self.steps, self.rewards = self.steps + batch.steps, self.rewards + kept
                self.stage.section("Seen in the loop", Paragraph(f"{self.steps} steps"), after="Evaluation")

            def figures(self):
                return {"stranger/steps": self.steps, "stranger/rewards": self.rewards}

            @staticmethod
            def page(folder, rows):
                return [Paragraph(f"the stranger saw {row['stranger/steps']} steps") for row in rows[-1:]]
        """,
}


def install(files: dict[str, str], folder: Path) -> dict[str, str]:
    """Installs a package of these files in `folder`; returns the environment that finds it."""
    for name, text in files.items():
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        lines = text.strip("\n").split("\n")
        indent = len(lines[0]) - len(lines[0].lstrip())
        (folder / "source" / name).write_text("\n".join(line[indent:] for line in lines) + "\n")
    flags = ["--no-index", "--no-deps", "--no-build-isolation", "--quiet", f"--target={folder / 'site'}"]
    subprocess.run([sys.executable, "-m", "pip", "install", *flags, folder / "source"], check=True)
    path = os.pathsep.join(filter(None, [str(ROOT), str(folder / "site"), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "motif_jax.launch", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.journey
def test_a_strangers_package_is_installed_and_used_by_its_names(tmp_path):
    environment = install(STRANGER, tmp_path)
    small = ["--config.collect.num_pairs=20", "--config.collect.collector=random", "--config.collect.num_workers=0"]
    line = [
        "--config=configs/motif.py:toy", f"--workdir={tmp_path / 'run'}", "--config.env.world=yard",
        "--config.annotate.backend=optimist", *small,
    ]  # fmt: skip
    done = run(environment, *line, "--stage=collect,annotate,count_pairs", "--config.stranger.factor=5")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/counted.txt").read_text() == "100"
    played = ["--stage=evaluate", "--config.evaluate.policy=random", "--config.evaluate.protocol=short"]
    few = ["--config.evaluate.episodes=2", "--config.evaluate.num_workers=0", "--config.stranger.factor=5"]
    done = run(environment, *line, *played, *few)
    assert done.returncode == 0, done.stderr
    summary = read_results(tmp_path / "run")["random-short"]
    assert (summary["rules"], summary["figures"]["steps"]["mean"]) == ("in three steps", 3)
    training = {
        "network": "small", "intrinsic_coefficient": 0.0, "num_workers": 0, "games_per_worker": 8, "rollout_length": 8,
        "batch_size": 64, "warmup_steps": 0, "tensorboard": False, "train_for_env_steps": 256, "sources": "crumbs",
    }  # fmt: skip
    flags = [f"--config.policy.{name}={value}" for name, value in training.items()]
    done = run(environment, *line, *flags, "--stage=train_policy,report", "--config.stranger.factor=5")
    assert done.returncode == 0, done.stderr
    *_, row = read_lines(tmp_path / "run/policy/metrics.jsonl")
    assert row["stranger/steps"] == row["stranger/rewards"] == row["env_steps"] == 256
    page = (tmp_path / "run/report/index.html").read_text()
    assert "the stranger saw 256 steps" in page
    assert "<p>256 steps</p>" in page
    assert "1 × a crumb per step" in page
    titles = re.findall("<h2[^>]*>(.*?)</h2>", page)
    assert titles.index("Seen in the loop") < titles.index("Training the agent")
    assert titles.index("Training the agent") < titles.index("Counted pairs") < titles.index("Preferences")
    code = "import motif_jax, sys; print(motif_jax.yard.name, 'yard' in dir(motif_jax), 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "yard True False\n"
    other = run(environment, *line, "--stage=collect", "--config.stranger.factor=4")
    assert other.returncode == 2
    assert re.search(r"--config.stranger.factor +5 +4\n", other.stderr)  # it decides the pairs
    assert "--config.stranger.factor=3" in run(environment, "--help=stranger").stdout
    without = run(dict(os.environ), *line, "--dry_run")
    assert without.returncode == 2
    assert "unknown world 'yard'" in without.stderr


@pytest.mark.quick
def test_plugins_that_cannot_be_loaded_are_named_and_others_go_on(monkeypatch):
    def exits() -> Plugin:
        raise SystemExit("no licence")

    declared = [
        ("good", lambda: Plugin(worlds={"one": "good:World"})), ("raises", lambda: 1 / 0), ("exits", exits),
        ("number", lambda: 3), ("path", lambda: Plugin(judges={"two": "no path"})),
        ("alone", lambda: Plugin(decides=("collect",))), ("list", lambda: Plugin(worlds=["yard"])),
        ("section", lambda: Plugin(section="pathlib:Path")), ("lost", lambda: Plugin(section="nowhere_at_all:Values")),
    ]  # fmt: skip
    monkeypatch.setattr(plugins, "_declared", lambda: iter(declared))
    found = plugins.find_plugins()
    assert found.by_name.keys() == {"good"}
    worlds: dict[str, str] = {}
    found.join(worlds=worlds)
    assert worlds == {"one": "good:World"}
    wrong = dict(sentence.removeprefix("the plugin ").split(" is left out: ") for sentence in found.broken)
    assert wrong.pop("'raises'") == "division by zero"
    assert wrong.pop("'exits'") == "no licence"
    assert "must be a motif_jax.plugins.Plugin, not 3" in wrong.pop("'number'")
    assert "'two' in its judges must be 'module:attribute', not 'no path'" in wrong.pop("'path'")
    assert "must be a dataclass of values" in wrong.pop("'section'")
    assert "No module named 'nowhere_at_all'" in wrong.pop("'lost'")
    assert "`decides` is a tuple of stages" in wrong.pop("'alone'")
    assert "its worlds must be names" in wrong.pop("'list'")
    assert not wrong


@pytest.mark.quick
def test_a_name_that_two_plugins_have_is_refused(monkeypatch):
    twice = [("one", lambda: Plugin(worlds={"yard": "a:A"})), ("two", lambda: Plugin(worlds={"yard": "b:B"}))]

    def refusal(declared: list, sections: tuple[str, ...] = ()) -> str:
        monkeypatch.setattr(plugins, "_declared", lambda: iter(declared))
        found = plugins.find_plugins()
        found.join(worlds={"nethack": "core:World"})
        monkeypatch.setattr(names, "PLUGINS", found)
        with pytest.raises(UserError) as refused:
            names.check_plugins(sections)
        return str(refused.value)

    assert refusal(twice) == "the plugin 'two' has a world 'yard', as has the plugin 'one': uninstall one"
    assert refusal(twice[:1] * 2) == "two plugins have the name 'one': uninstall one"
    of_core = [("one", lambda: Plugin(worlds={"nethack": "a:A"}))]
    assert refusal(of_core) == "the plugin 'one' has a world 'nethack', as has the program itself: uninstall one"
    section = [("policy", lambda: Plugin(section="motif_jax.contrib.drrn.sections:DrrnSection"))]
    assert refusal(section, ("env", "policy")) == "the plugin 'policy' has the name of a section of the config"


class Away(Pools, Runner):
    """Of a plugin that is asked for by a seed."""


def away(config: Experiment) -> Away | None:
    return Away(config.seeds_at_once) if config.seed == 7 else None


@pytest.mark.quick
def test_games_and_runs_are_where_a_plugin_has_them_if_the_config_asks(monkeypatch):
    monkeypatch.setitem(names.POOLS, "away", "plugins_test:away")
    monkeypatch.setitem(names.RUNNERS, "away", "plugins_test:away")
    asks, other = Experiment(seed=7), Experiment(seed=8)
    assert type(stages.find_pools(asks)) is type(stages.find_runner(asks)) is Away
    assert type(stages.find_pools(other)) is Pools
    assert type(stages.find_runner(other)) is Runner
    assert stages.find_runner(other).is_here


@pytest.mark.quick
def test_a_module_of_a_plugin_that_cannot_be_imported_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "leaves.py").write_text("raise SystemExit('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(names, "OF_OTHERS", {"leaves:Game"})
    with pytest.raises(UserError, match="^'leaves:Game', which a plugin names, cannot be imported: no licence$"):
        names.find({"yard": "leaves:Game"}, "yard")
