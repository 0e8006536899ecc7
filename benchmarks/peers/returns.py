"""The return of AgileRL's ILQL and of ours after as many updates with the same batches of transcripts.

    python -m benchmarks.peers.returns --updates=1000 --seeds=5 --peers_dir=runs/peers

Both learn a policy and its values together (ours as ilql+joint), with equal networks for values, learning rates and
weights of losses, from games of Wordle with ten words, few enough for so few updates. Then both play the same games,
and this program draws the letters for both: from the policy's logits + beta (Q - V). Differences: AgileRL's policy has
a head with two hidden layers; our learning rate rises during the first 50 updates.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import jax
import numpy as np
import scipy.stats

from benchmarks.offline import LONGEST, PLAYER, new_model, peer_task
from benchmarks.peers.processes import SCRIPTS, PeerError, install, variables
from motif_jax.actors.recorder import play_episodes
from motif_jax.devices.mesh import make_mesh, map_update, replicate, shard
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import SeedStream
from motif_jax.envs.worlds import make_world
from motif_jax.language.model import as_functions
from motif_jax.offline.recipes import OfflineSettings
from motif_jax.offline.update import TranscriptBatch, init_state, make_update, objective_of
from motif_jax.policies.decoding import Decoding
from motif_jax.policies.writing import Reply, ValueModel, ValueWriter, allowed_tokens, play_games
from motif_jax.tokens import LetterTokeniser
from motif_jax.transcripts.render import TEMPLATES, LiveRenderer, Renderer
from motif_jax.transcripts.store import turns_of

WORDS = ["apple", "cloud", "earth", "grape", "jolly", "light", "north", "queen", "table", "voice"]
EPISODES, BATCH, GAMES, BETAS = 20_000, 24, 256, (0.0, 4.0, 16.0)
SAID = 6  # tokens of a guess
Scores = Callable[[Sequence[Sequence[int]]], tuple[np.ndarray, np.ndarray]]  # contexts -> logits and Q - V. [N, V]


class ScoredWriter(ValueWriter):
    """Writes with the scores of another library's model."""

    def __init__(self, model: ValueModel, scores: Scores):
        """`model`: its tokeniser, its renderer and its allowed tokens are used."""
        super().__init__(model)
        self._scores = scores

    def write(
        self, contexts: Sequence[Sequence[int]], decoding: Decoding, key: jax.Array, numbers: Sequence[int]
    ) -> list[Reply]:
        """See `ValueWriter`; draws other samples."""
        model, said = self.model, [list[int]() for _ in contexts]
        for step in range(decoding.max_tokens):
            rows = [row for row, text in enumerate(said) if text[-1:] != [model.renderer.stop]]
            if not rows:
                break
            logits, advantage = self._scores([[*contexts[row], *said[row]] for row in rows])
            scores = np.where(model.allowed, logits + decoding.beta * advantage, -np.inf)
            if decoding.kind != "greedy":
                scores = scores + np.asarray(jax.random.gumbel(jax.random.fold_in(key, step), scores.shape))
            for row, token in zip(rows, scores.argmax(-1).tolist(), strict=True):
                said[row].append(token)
        texts = [model.tokeniser.decode([token for token in text if token != model.renderer.stop]) for text in said]
        return [Reply(text, 1.0, tokens, np.zeros(len(tokens))) for text, tokens in zip(texts, said, strict=True)]


def ask(process: subprocess.Popen[str], contexts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Scores from the peer's process: a line of JSON each way."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([list(tokens) for tokens in contexts]) + "\n")
    process.stdin.flush()
    if not (line := process.stdout.readline()):
        raise PeerError(f"it ended with status {process.wait()}")
    found = json.loads(line)
    return np.array(found["logits"]), np.array(found["advantage"])


class Comparison:
    """The transcripts, and what both sides learn and play with."""

    def __init__(self, updates: int) -> None:
        self._made = tempfile.TemporaryDirectory()  # as long as this object, since games read the file
        (words := Path(self._made.name) / "words.txt").write_text("\n".join(WORDS))
        world = make_world({"world": "wordle", "options": json.dumps({"words": str(words)})})
        assert isinstance(world, TextWorld)
        self.world, self.updates = world, updates
        recorded = turns_of(list(play_episodes(world, PLAYER, range(EPISODES), seed=0)))
        self.tokeniser, template = LetterTokeniser.from_texts(recorded.texts), TEMPLATES["marks"]
        self.renderer, self.live = Renderer(recorded, self.tokeniser, template), LiveRenderer(self.tokeniser, template)
        self.settings = OfflineSettings(learning_rate=2e-3, polyak=0.5, max_gradient_norm=0.0)

    def batches(self, seed: int) -> np.ndarray:
        """Numbers of the episodes in each batch. [updates, BATCH]"""
        return np.random.default_rng(seed).integers(EPISODES, size=(self.updates, BATCH))

    def model(self, seed: int) -> ValueModel:
        allowed = allowed_tokens(self.tokeniser.size, self.renderer.emitted(), self.live)
        return new_model("ilql+joint", self.tokeniser, self.live, allowed, seed=seed)

    def learn(self, seed: int) -> ValueWriter:
        model, mesh = self.model(seed), make_mesh()
        language = as_functions(model.graph, model.config)
        update = map_update(
            make_update(objective_of(language, model.recipe, self.settings), self.settings), mesh, 0, num_constants=1
        )
        key = jax.random.key(seed)
        state = init_state(key, language, model.recipe, self.settings, model.policy, model.policy)
        state = replicate(state, mesh)
        for episodes in self.batches(seed):
            state, _ = update(state, {}, shard(TranscriptBatch(self.renderer.rows(episodes, LONGEST)), mesh))
        learnt, target = jax.device_get((state.learnt, state.target))
        online = {"trunk": learnt["trunk"], "v": learnt["v"]}
        return ValueWriter(model._replace(policy=learnt["policy"], target=target, online=online))

    def learn_peer(self, seed: int, environment: Path, folder: Path) -> tuple[ValueWriter, subprocess.Popen[str]]:
        """AgileRL's, in a process that answers questions until it is killed."""
        task = peer_task(folder / "transcripts.npz", self.renderer, self.settings, batches=self.batches(seed))
        task |= {"vocabulary": self.tokeniser.size, "seed": seed, "longest": 2 * LONGEST}
        command = [str(environment / "bin" / "python"), str(SCRIPTS / "run_agilerl_ilql.py"), json.dumps(task)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=variables()
        )
        return ScoredWriter(self.model(seed), partial(ask, process)), process

    def returns(self, writer: ValueWriter, seed: int) -> dict[str, float]:
        """Mean returns of GAMES games, by decoding."""
        found = {}
        for decoding in [Decoding(beta=beta, max_tokens=SAID, batch_size=GAMES) for beta in BETAS]:
            played = play_games(self.world, writer, decoding, range(GAMES), seed=seed, stream=SeedStream.EVALUATE)
            found[decoding.name] = float(np.mean([episode.episode_return for episode in played]))
        return found


def main() -> None:
    """Prints a line per seed and side, and means with intervals over seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peers_dir", type=Path, default=Path("runs/peers"))
    flags = parser.parse_args()
    environment, comparison = install("agilerl_ilql", flags.peers_dir), Comparison(flags.updates)
    found: dict[str, list[dict[str, float]]] = {"ours": [], "agilerl": []}
    for seed in range(1, flags.seeds + 1):
        found["ours"].append(comparison.returns(comparison.learn(seed), seed))
        print(f"seed {seed}: ours {found['ours'][-1]}", flush=True)
        with tempfile.TemporaryDirectory() as made:
            writer, process = comparison.learn_peer(seed, environment, Path(made))
            with process:
                found["agilerl"].append(comparison.returns(writer, seed))
                process.kill()
        print(f"seed {seed}: agilerl {found['agilerl'][-1]}", flush=True)
    for side, rows in found.items():
        for name in rows[0]:
            values = np.array([row[name] for row in rows])
            half = scipy.stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
            print(f"{side} {name}: {values.mean():.2f} +- {half:.2f} (95 %, t)")


if __name__ == "__main__":
    main()
