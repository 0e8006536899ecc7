"""Other people's libraries on the same work, each in an environment of its own, and ours in turn in the same run.

The environments are made from launch/peers/NAME.txt. A peer that cannot be installed, or whose run fails, becomes a row
that says why. docs/results/speed.md describes the work of each comparison.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from ml_collections import ConfigDict

from benchmarks import engines, offline
from benchmarks.peers.processes import PeerError, install, measure_rate, versions_of
from benchmarks.policy import STRETCH, Training
from benchmarks.rows import Row, Rows, medians, rate_of, take_turns
from motif_jax.actors.recorder import play_episodes
from motif_jax.config.file import find_config, load
from motif_jax.devices.mesh import make_mesh, map_update, replicate, shard
from motif_jax.envs.nethack.game import KEYS
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import SeedStream
from motif_jax.envs.worlds import make_world
from motif_jax.experiment import tables
from motif_jax.language.model import as_functions
from motif_jax.networks.images import elu
from motif_jax.networks.policy import GENERAL_CORE
from motif_jax.offline.recipes import OfflineSettings
from motif_jax.offline.update import group_objective, init_state, make_update, restricted
from motif_jax.policies.decoding import Decoding
from motif_jax.policies.writing import NOT_WRITTEN, ValueWriter, play_tokens
from motif_jax.stages.train_values.learning import as_batch
from motif_jax.structs import ArraySpec
from motif_jax.tokens import LetterTokeniser
from motif_jax.transcripts.render import TEMPLATES, LiveRenderer
from motif_jax.transcripts.store import turns_of

GAMES, WORKERS, ROLLOUT = 64, 2, 32
LONGEST = 1000  # steps of an episode of NetHack
WIDTHS = (64, 64)  # of the layers before the recurrent unit
LETTERS, BATCH, GROUP = 64, 64, 8  # of a comment, comments of an update, and comments on the same post
SHARED = ("nle", "gymnasium", "numpy")  # packages of both sides whose versions a row names where they differ


class Subject(NamedTuple):
    """Our side of a comparison."""

    run: Callable[[], float]  # returns a rate
    task: dict[str, Any]  # the same work, for the peer's script
    sizes: Mapping[str, Any]  # for the rows


class Peer(NamedTuple):
    """A library that we compare with."""

    package: str
    unit: str
    prepare: Callable[[float, Path], Subject]  # from seconds per measurement and a folder for files


class Encoder(nnx.Module):
    """Linear layers on NetHack's bottom line alone, each with ELU, for `--config.policy.network`."""

    def __init__(self, specs: Mapping[str, ArraySpec], *, dtype: DTypeLike, rngs: nnx.Rngs):
        sizes = itertools.pairwise((*specs["blstats"].shape, *WIDTHS))
        self.layers = nnx.List([nnx.Linear(*pair, dtype=dtype, rngs=rngs) for pair in sizes])

    def __call__(self, observations: Mapping[str, jax.Array]) -> jax.Array:
        """Observations [N, ...] -> [N, WIDTHS[-1]]"""
        x = observations["blstats"].astype(np.float32) / 100
        for layer in self.layers:
            x = elu(layer(x))
        return x


def train_nethack(seconds: float, folder: Path, **values: Any) -> Subject:
    """Training from end to end on NetHack's score; `values`: of --config.policy."""
    config = load(find_config("motif"), None, tables())
    config.env.update({"screen": "map", "max_episode_steps": LONGEST})
    config.policy.update({"num_workers": WORKERS, "games_per_worker": GAMES // WORKERS, "rollout_length": ROLLOUT})
    config.policy.update(values)
    training, section = Training(config, f"{__name__}:{Encoder.__name__}", rewarded=False), config.policy
    task = play_nethack(STRETCH * seconds, folder).task | {
        "batch": section.batch_size, "epochs": section.num_epochs, "minibatches": section.num_minibatches,
        "rollout": ROLLOUT, "widths": WIDTHS, "memory": GENERAL_CORE,
    }  # fmt: skip
    return Subject(partial(training.run, STRETCH * seconds), task, training.sizes())


def play_nethack(seconds: float, folder: Path) -> Subject:
    """Random actions in NetHack, all from one process."""
    task = {"seconds": seconds, "keys": KEYS, "longest": LONGEST, "games": GAMES, "workers": WORKERS}
    task |= {"warmup": 4 * engines.ROLLOUT * GAMES}  # steps, as in `engines.pool`
    sizes = {"games": GAMES, "workers": WORKERS, "actions": "from the parent"}
    return Subject(partial(engines.pool, seconds, GAMES, WORKERS, ""), task, sizes)


def update_values(seconds: float, folder: Path) -> Subject:
    """ILQL's update on games of Wordle, with as many episodes in a batch on both sides."""
    subject = offline.Subject()
    sizes = {"width": offline.WIDTH, "layers": offline.LAYERS, "heads": offline.HEADS, "rows": offline.ROWS * 2}
    sizes["vocabulary"] = subject.model.config.vocabulary
    task = sizes | {"seconds": seconds, "longest": offline.LONGEST}
    task |= offline.peer_task(folder / "transcripts.npz", subject.renderer, OfflineSettings())
    return Subject(partial(rate_of, subject.update, seconds), task, sizes)


def write_in_groups(seconds: float, folder: Path) -> Subject:
    """grpo from end to end: comments on posts, of LETTERS each, and an update for each BATCH of them."""
    world, renderer = make_world({"world": "comments"}), TEMPLATES["marks"]
    assert isinstance(world, TextWorld)
    episodes = list(play_episodes(world, "kind", range(200), seed=0))
    tokeniser = LetterTokeniser.from_texts(turns_of(episodes).texts)
    live = LiveRenderer(tokeniser, renderer)
    prompts = [live.begin(episode.turns[0].text) for episode in episodes]
    longest = max(map(len, prompts)) + LETTERS + 8
    allowed = np.ones(tokeniser.size, bool)
    allowed[live.stop] = False  # all comments are equally long
    settings = OfflineSettings(group_size=GROUP, learning_rate=1e-4)
    model = offline.new_model("grpo", tokeniser, live, allowed, longest)
    writer = ValueWriter(model, as_drawn=True)
    language, mesh = restricted(as_functions(model.graph, model.config), jnp.asarray(allowed), 1.0), make_mesh()
    update = map_update(make_update(group_objective(language, settings, 0), settings), mesh, 0, num_constants=1)
    decoding, rounds = Decoding("sample", max_tokens=LETTERS, batch_size=BATCH), itertools.count()
    state = init_state(jax.random.key(0), language, model.recipe, settings, model.policy, model.policy)
    state = replicate(state, mesh)

    def learn() -> int:
        nonlocal state
        number = next(rounds)
        writer.swap(jax.device_get(state.learnt["policy"]), {}, {})
        games = number * (BATCH // GROUP) + np.arange(BATCH) // GROUP
        key = jax.random.key(number)
        played = play_tokens(world, writer, decoding, games.tolist(), key, 0, SeedStream.TRAIN)
        state, metrics = update(state, {}, shard(as_batch(played, settings, None, longest), mesh))
        jax.block_until_ready(metrics)
        return sum(text != NOT_WRITTEN for game in played for text in game.text)

    sizes = {"width": offline.WIDTH, "layers": offline.LAYERS, "heads": offline.HEADS, "vocabulary": tokeniser.size,
             "letters": LETTERS, "games": BATCH, "group": GROUP}  # fmt: skip
    task = sizes | {"seconds": seconds, "longest": longest, "prompts": prompts, "learning_rate": settings.learning_rate}
    return Subject(partial(rate_of, learn, seconds), task, sizes)


PEERS = {
    "sample_factory": Peer("sample-factory", "steps/s", partial(train_nethack, batch_size=1024)),
    "sb3": Peer(
        "sb3-contrib", "steps/s",
        partial(train_nethack, algorithm="ppo", batch_size=GAMES * ROLLOUT, num_minibatches=2, num_epochs=4),
    ),
    "pufferlib": Peer("pufferlib", "steps/s", play_nethack),
    "agilerl_ilql": Peer("agilerl", "tokens/s", update_values),
    "trl": Peer("trl", "tokens/s", write_in_groups),
}  # fmt: skip


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `peers.*`."""
    rows, folder = Rows(), Path(config.benchmark.peers_dir or workdir / "peers")
    for name, peer in PEERS.items():
        problem = "not installed"
        try:
            environment = install(name, folder)
            problem = "failed"
            measure_peer(rows, name, environment, config)
        except PeerError as error:
            why: dict[str, Any] = {problem: str(error)}
            rows.add(f"peers.{name}", 0.0, peer.unit, **why)
    return rows


def measure_peer(rows: Rows, name: str, environment: Path, config: ConfigDict) -> None:
    """Adds a peer's rate, ours, and their ratio; raises PeerError if a run of the peer fails."""
    peer, versions = PEERS[name], versions_of(environment)
    with tempfile.TemporaryDirectory() as made:
        subject = peer.prepare(config.benchmark.seconds, Path(made))
        theirs = partial(measure_rate, name, environment, subject.task)
        runs: dict[str, Callable[[], float]] = {"theirs": theirs, "ours": subject.run}
        rounds = take_turns(runs, config.benchmark.repeats)
    used: dict[str, Any] = {"version": versions.get(peer.package, "unknown")}
    for package in SHARED:
        ours = importlib.metadata.version(package)
        if versions.get(package, ours) != ours:
            used[package] = f"{versions[package]} (ours {ours})"
    rates = medians(rounds)
    rows.add(f"peers.{name}", rates["theirs"], peer.unit, **used)
    rows.add(f"peers.{name}.ours", rates["ours"], peer.unit, **subject.sizes)
    rows.compare(f"peers.over_{name}", rounds["ours"], rounds["theirs"], digits=2)
