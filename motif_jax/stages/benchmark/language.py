"""Measures language models that play: scores of actions' names, the games of BabyAI, and training from end to end.

Scores are of six names behind prompts of 200 tokens, for a decoder that is large enough to keep a core busy: packed as
the policy packs them, one row per name, and one row per name in transformers with the same weights, where PyTorch is
installed. The memory of large models is computed, and nothing of them is made.
"""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

from motif_jax.envs.seeding import SeedStream
from motif_jax.envs.settings import make_world
from motif_jax.envs.world import step_specs
from motif_jax.language.config import from_record
from motif_jax.language.hub import write_language_model
from motif_jax.language.hub_config import make_config
from motif_jax.language.model import make_language_model
from motif_jax.language.scoring import make_tree, score
from motif_jax.networks.kinds import LANGUAGE
from motif_jax.policies.prompts import encode_names
from motif_jax.stages.benchmark.device import is_accelerated
from motif_jax.stages.benchmark.language_sizes import cache_bytes, flop_per_prompt, memory_rows
from motif_jax.stages.benchmark.policy import STRETCH, Training
from motif_jax.stages.benchmark.reward import matrix_product
from motif_jax.stages.benchmark.rows import Row, say, take_turns
from motif_jax.tokens import tokeniser_from_text

NAMES = ((2, 3), (2, 4), (5, 6), (7, 8), (9,), (10,))  # "turn left", "turn right", "go forward", "pick up", ...
PROMPT, STATES = 200, 16  # tokens of a prompt, prompts of a call
WIDTH, LAYERS, HEADS, VOCABULARY = 256, 4, 8, 256
GAMES = 32


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Measures this part of the benchmark; returns its rows, each printed as soon as it is known."""
    rows: list[Row] = []

    def add(name: str, value: float, unit: str, **sizes: object) -> None:
        rows.append(say(Row(name, round(value, 3), unit, sizes)))

    seconds = config.benchmark.seconds
    training = Playing(config)
    with tempfile.TemporaryDirectory(dir=workdir) as folder:
        scoring = Scoring(Path(folder))
        runs: dict[str, Callable[[], float]] = {
            "matrix_product": partial(matrix_product, "float32"),
            "packed": partial(scoring.rate, scoring.packed, seconds),
            "rows": partial(scoring.rate, scoring.one_per_name, seconds),
        }
        if importlib.util.find_spec("transformers") and importlib.util.find_spec("torch") and not is_accelerated():
            runs["torch"] = partial(scoring.rate, scoring.in_torch(), seconds)
        runs |= {
            "games": partial(games_rate, config, seconds),
            "end_to_end": partial(training.run, STRETCH * seconds),
        }
        rounds = take_turns(runs, config.benchmark.repeats)
    median = {name: statistics.median(rates) for name, rates in rounds.items()}

    product = median["matrix_product"]
    add("language.matrix_product", product, "GFLOP/s")
    sizes = {"prompt": PROMPT, "actions": len(NAMES), "states": STATES, "parameters": scoring.parameters}
    needed = flop_per_prompt(scoring.config, PROMPT, scoring.nodes)
    share = f"{100 * median['packed'] * needed / product / 1e9:.0f} % of a matrix product"
    add("language.score", median["packed"], "states/s", **sizes, limit=share)
    for name in ("rows", "torch"):
        if name in median:
            ratios = [ours / plain for ours, plain in zip(rounds["packed"], rounds[name], strict=True)]
            spread = {"least": round(min(ratios), 1), "most": round(max(ratios), 1)}
            add(f"language.score.{name}", median[name], "states/s")
            add(f"language.score_over_{name}", statistics.median(ratios), "times", **spread)
    add("language.cache", cache_bytes(scoring.config), "bytes per token", layers=scoring.config.layers)
    add("babyai.step", median["games"], "steps/s", level=config.env.babyai.level, games=GAMES)
    rows += end_to_end_rows(training, median["end_to_end"], product)
    return rows + [say(row) for row in memory_rows()]


def end_to_end_rows(training: Playing, rate: float, product: float) -> list[Row]:
    """Frames per second of training, and the share of what the machine's matrix products would allow."""
    flop, sizes = training.flop_per_frame(), training.sizes()
    limit = product * 1e9 / flop
    about = {"limit": f"{limit:,.0f} frames/s"}
    return [
        say(Row("policy.end_to_end.language", round(rate, 2), "frames/s", sizes | {"MFLOP": round(flop / 1e6)})),
        say(Row("policy.share_of_limit.language", round(100 * rate / limit, 1), "%", about)),
    ]


class Playing(Training):
    """A new language model that learns by playing."""

    def __init__(self, config: ConfigDict):
        """Builds it as train_policy does."""
        super().__init__(config, LANGUAGE, rewarded=False)

    def flop_per_frame(self) -> float:
        """Operations of matrix products: of acting once, and of learning, where going back costs twice going forward.

        Padding is counted, as far as the last batch had it.
        """
        own, section = self._parts.options[LANGUAGE], self._config.policy
        names = encode_names(tokeniser_from_text(own["tokeniser"]), own["actions"])
        length = self._batch.arrays.rollouts.observations["tokens"].shape[-1]
        once = flop_per_prompt(from_record(own["config"]), length, make_tree([names]).nodes.shape[1])
        return once * (1 + 3 * section.num_epochs)


class Scoring:
    """One model, that scores the same names behind the same prompts in several ways."""

    def __init__(self, folder: Path):
        """`folder`: for the files of the model, which transformers reads."""
        self._folder = folder
        self.config = make_config("llama", VOCABULARY, WIDTH, LAYERS, HEADS, max_position_embeddings=PROMPT + 8)
        model = make_language_model(self.config)
        self._graph, self._params = nnx.split(model)
        self.parameters = sum(leaf.size for leaf in jax.tree.leaves(self._params))
        self._prompts = np.random.default_rng(0).integers(VOCABULARY, size=(STATES, PROMPT)).astype(np.int32)
        self._tree = make_tree([NAMES])
        self.nodes = self._tree.nodes.shape[1]
        rows = [[*prompt, *name] for prompt in self._prompts.tolist() for name in NAMES]
        longest = max(map(len, rows))
        self._rows = np.array([row + [0] * (longest - len(row)) for row in rows], np.int32)  # [states names, tokens]
        self._named = np.array([PROMPT - 1 + np.arange(longest - PROMPT)] * len(rows))  # where a name is predicted
        lengths = np.array([len(name) for _ in range(STATES) for name in NAMES])
        self._counts = np.arange(longest - PROMPT) < lengths[:, None]
        self._packed = jax.jit(self._score_packed)
        self._plain = jax.jit(self._score_rows)

    def rate(self, run: Callable[[], np.ndarray], seconds: float) -> float:
        """States per second; the first call, which compiles, is not counted."""
        run()
        done, start = 0, time.perf_counter()
        while not done or time.perf_counter() - start < seconds:
            run()
            done += 1
        return done * STATES / (time.perf_counter() - start)

    def packed(self) -> np.ndarray:
        """As the policy does it. [states, names], as of the others"""
        return np.asarray(self._packed(self._params, self._prompts))

    def one_per_name(self) -> np.ndarray:
        """Each name behind a prompt of its own."""
        return np.asarray(self._plain(self._params, self._rows))

    def in_torch(self) -> Callable[[], np.ndarray]:
        """The same in transformers."""
        import torch
        import transformers

        write_language_model(self._folder, nnx.merge(self._graph, self._params))
        transformers.utils.logging.disable_progress_bar()
        model = transformers.AutoModelForCausalLM.from_pretrained(self._folder, dtype=torch.float32).eval()
        tokens = torch.from_numpy(self._rows).long()
        places, counts = torch.from_numpy(self._named), torch.from_numpy(self._counts)

        def run() -> np.ndarray:
            with torch.no_grad():
                logits = model(input_ids=tokens, logits_to_keep=tokens.shape[1] - PROMPT + 1).logits
            odds = torch.log_softmax(logits[:, :-1], -1)
            found = torch.gather(odds, -1, torch.gather(tokens, 1, places + 1)[..., None])[..., 0]
            return (found * counts).sum(1).reshape(STATES, len(NAMES)).numpy()

        return run

    def _score_packed(self, params: Any, prompts: jax.Array) -> jax.Array:
        return score(nnx.merge(self._graph, params), prompts, jnp.ones_like(prompts), self._tree).log_probs

    def _score_rows(self, params: Any, rows: jax.Array) -> jax.Array:
        model: Any = nnx.merge(self._graph, params)
        hidden = jnp.take_along_axis(model(rows, jnp.ones_like(rows)), self._named[..., None], 1)
        odds = jax.nn.log_softmax(model.logits(hidden))
        names = jnp.take_along_axis(rows, self._named + 1, 1)
        found = jnp.take_along_axis(odds, names[..., None], -1)[..., 0]
        return (found * self._counts).sum(1).reshape(STATES, len(NAMES))


def games_rate(config: ConfigDict, seconds: float) -> float:
    """Steps per second of the config's level in this process: random actions, and the prompts that a policy reads."""
    world = make_world(config.env.to_dict())
    vector = world.vector(GAMES, ("prompt",), seed=0, stream=SeedStream.TRAIN)
    specs = step_specs() | {"prompt": world.specs["prompt"]}
    rows = vector.open_rows({name: np.zeros((GAMES, *spec.shape), spec.dtype) for name, spec in specs.items()})
    rng = np.random.default_rng(0)
    vector.reset()
    done, start = 0, time.perf_counter()
    while not done or time.perf_counter() - start < seconds:
        vector.step(rng.integers(len(world.action_names), size=GAMES).tolist(), rows)
        vector.observe(rows)
        done += GAMES
    rate = done / (time.perf_counter() - start)
    vector.close()
    return rate
