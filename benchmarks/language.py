"""Language models that play (GLAM): scores of actions' names, the games of BabyAI, and training from end to end.

Scores are of six names behind prompts of 200 tokens, for a decoder that is large enough to keep a core busy: packed as
the policy packs them, one row per name, and one row per name in transformers with the same weights, where PyTorch is
installed. Games and training are those of the config if its policy is a language model, else of CONFIG. Its prompts are
read in shared rows, as the policy does it, and in turn with a padded row each.

Messages are rated by a language model as the backend of the judge does it, whole, and in transformers, whose cache
keeps the beginning.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

from benchmarks.device import is_accelerated, matrix_product
from benchmarks.policy import STRETCH, Training
from benchmarks.rows import Row, Rows, medians, rate_of, take_turns
from motif_jax.config.file import find_config, load
from motif_jax.devices.mesh import shard
from motif_jax.envs.world import SeedStream, step_specs
from motif_jax.envs.worlds import make_world
from motif_jax.experiment import tables
from motif_jax.language.config import LanguageConfig, from_record, make_config
from motif_jax.language.hub import write_language_model
from motif_jax.language.loaded import Language, NextTokens
from motif_jax.language.model import make_language_model
from motif_jax.language.packing import pad_rows
from motif_jax.language.scoring import make_tree, score
from motif_jax.networks.kinds import LANGUAGE
from motif_jax.policies.decoding import TRAINED
from motif_jax.policies.language_policy import BUCKET, PADDING, PLACES, encode_names
from motif_jax.tokens import WordTokeniser, tokeniser_from_text

CONFIG = "glam_quickstart", "goto_small,unread"
NAMES = ((2, 3), (2, 4), (5, 6), (7, 8), (9,), (10,))  # "turn left", "turn right", "go forward", "pick up", ...
PROMPT, STATES = 200, 16  # tokens of a prompt, prompts of a call
WIDTH, LAYERS, HEADS, VOCABULARY = 256, 4, 8, 256
GAMES = 32
BEGIN, TEXTS, VERDICTS, WORDS = 150, 128, (1, 2), 512  # tokens that texts share; texts; ratings; vocabulary


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `language.*`, `babyai.step` and `policy.*.language`."""
    if config.policy.network != LANGUAGE or config.policy.language.model == TRAINED:
        values = config.benchmark
        config = load(find_config(CONFIG[0]), CONFIG[1], tables())
        with config.unlocked():
            config.benchmark = values
    seconds, rows = config.benchmark.seconds, Rows()
    compiled = Compiled()
    training = Playing(config)
    training.run(0.0)  # compiles, and leaves a batch
    rows.add("policy.compile.language", sum(compiled), "s", programs=len(compiled))
    with tempfile.TemporaryDirectory(dir=workdir) as folder:
        scoring, judging = Scoring(Path(folder)), Judging(Path(folder) / "judge")
        runs: dict[str, Callable[[], float]] = {
            "matrix_product": partial(matrix_product, "float32"),
            "packed": partial(scoring.rate, scoring.packed, seconds),
            "rows": partial(scoring.rate, scoring.one_per_name, seconds),
            "judge": partial(scoring.rate, judging.shared, seconds),
            "judge.whole": partial(scoring.rate, judging.whole, seconds),
        }
        if importlib.util.find_spec("transformers") and importlib.util.find_spec("torch") and not is_accelerated():
            runs["torch"] = partial(scoring.rate, scoring.in_torch(), seconds)
            runs["judge.torch"] = partial(scoring.rate, judging.in_torch(), seconds)
        runs["act"], runs["learn"] = partial(training.read, seconds), partial(training.learn, seconds)
        if training.is_packed:
            runs["act.padded"] = partial(training.read, seconds, padded=True)
            runs["learn.padded"] = partial(training.learn_padded, seconds)
        runs["product"] = partial(matrix_product, config.policy.dtype)
        runs["games"] = partial(games_rate, config, seconds)
        runs["end_to_end"] = partial(training.run, STRETCH * seconds)
        rounds = take_turns(runs, config.benchmark.repeats)
    rates = medians(rounds)

    product = rates["matrix_product"]
    rows.add("language.matrix_product", product, "GFLOP/s")
    sizes = {"prompt": PROMPT, "actions": len(NAMES), "states": STATES, "parameters": scoring.parameters}
    needed = flop_per_prompt(scoring.config, PROMPT, scoring.nodes)
    share = f"{100 * rates['packed'] * needed / product / 1e9:.0f} % of a matrix product"
    rows.add("language.score", rates["packed"], "states/s", **sizes, limit=share)
    for name in ("rows", "torch"):
        if name in rates:
            rows.add(f"language.score.{name}", rates[name], "states/s")
            rows.compare(f"language.score_over_{name}", rounds["packed"], rounds[name])
    rows.add("judge.ratings", rates["judge"], "texts/s", beginning=BEGIN, tokens=judging.tokens, texts=TEXTS)
    for name in ("whole", "torch"):
        if f"judge.{name}" in rates:
            rows.add(f"judge.ratings.{name}", rates[f"judge.{name}"], "texts/s")
            rows.compare(f"judge.ratings_over_{name}", rounds["judge"], rounds[f"judge.{name}"])
    # Keys and values of a token of a prompt in all layers, in float32.
    cache = 2 * scoring.config.layers * scoring.config.kv_heads * scoring.config.head_size * 4
    rows.add("language.cache", cache, "bytes per token", layers=scoring.config.layers)
    rows.add("babyai.step", rates["games"], "steps/s", level=config.env.babyai.level, games=GAMES)
    training.add_rows(rows, rounds, rates)
    return rows


class Compiled(list[float]):
    """Seconds of each program that is compiled, or found in the cache on disk, from now on."""

    def __init__(self) -> None:
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            self.append(duration_secs)


class Playing(Training):
    """A language model that learns by playing."""

    def __init__(self, config: ConfigDict):
        super().__init__(config, LANGUAGE, rewarded=False)
        model = self._model

        def step(params: Any, frozen: Any, seen: Any) -> tuple[jax.Array, jax.Array]:
            first, core = jnp.ones(len(seen["tokens"]), bool), jnp.zeros((len(seen["tokens"]), 0))
            return model.step(params, frozen, seen, first, core, ())[:2]

        self._read = jax.jit(step)

    @property
    def is_packed(self) -> bool:
        """Whether prompts share rows; those of encoders do not."""
        return self._model.pack is not None

    def read(self, seconds: float, *, padded: bool = False) -> float:
        """Prompts per second in acting, in calls for all games: packing and reading, without tokenising."""
        tokens = self._padded()["tokens"][0]
        calls = np.zeros(len(tokens), np.intp)

        def act() -> int:
            seen = {"tokens": tokens} if padded or not self._model.pack else self._model.pack({"tokens": tokens}, calls)
            jax.block_until_ready(self._read(self._model.params, self._frozen, seen))
            return len(tokens)

        return rate_of(act, seconds)

    def learn_padded(self, seconds: float) -> float:
        """As `learn`, with a row for each prompt."""
        batch = self._batch
        rollouts = shard(batch.arrays.rollouts._replace(observations=self._padded()), self._learner.mesh, axis=1)
        self._batch = batch._replace(arrays=batch.arrays._replace(rollouts=rollouts))
        try:
            return self.learn(seconds)
        finally:
            self._batch = batch

    def add_rows(self, rows: Rows, rounds: dict[str, list[float]], rates: dict[str, float]) -> None:
        """Adds the rows of acting, learning, and both: rates, and operations per prompt as executed and as needed."""
        section, product = self._config.policy, rates["product"] * 1e9
        needed, executed, padded = self.flop_per_prompt()
        limit = product / (executed * (1 + 3 * section.num_epochs))
        sizes: dict[str, Any] = {
            "MFLOP": round(executed / 1e6, 1),
            "needed": round(needed / 1e6, 1),
            "padded": round(padded / 1e6, 1),
        }
        for name, passes in (("act", 1), ("learn", 3 * section.num_epochs)):
            share = f"{100 * rates[name] * executed * passes / product:.0f} % of a matrix product"
            rows.add(f"policy.{name}.language", rates[name], "steps/s", **sizes, passes=passes, limit=share)
            if self.is_packed:
                rows.add(f"policy.{name}.language.padded", rates[f"{name}.padded"], "steps/s")
                rows.compare(f"policy.{name}_over_padded.language", rounds[name], rounds[f"{name}.padded"])
        for activity, seconds_per_step in self.spent.items():
            rows.add(f"policy.time.{activity}.language", 100 * seconds_per_step * self.rate, "%")
        rate = rates["end_to_end"]
        rows.add("policy.end_to_end.language", rate, "frames/s", 2, **self.sizes())
        rows.add("policy.share_of_limit.language", 100 * rate / limit, "%", 1, limit=f"{limit:,.0f} frames/s")

    def flop_per_prompt(self) -> tuple[float, float, float]:
        """Operations of reading a prompt once, in the last batch: needed, as executed, and with a padded row each.

        Needed are those for the prompt alone, without padding, although its beginning need not be read again.
        """
        own = self._parts.spec[LANGUAGE]
        config = from_record(own["config"])
        nodes = make_tree([encode_names(tokeniser_from_text(own["tokeniser"]), own["actions"])]).nodes.shape[1]
        tokens = self._padded()["tokens"]
        needed = flop_per_prompt(config, (tokens != PADDING).sum(-1).mean(), nodes)
        padded = flop_per_prompt(config, tokens.shape[-1], nodes)
        if not self.is_packed:
            return needed, padded, padded
        places = self._batch.arrays.rollouts.observations[PLACES]
        slots = places.rows * places.size / places.texts
        return needed, flop_of(config, slots, places.size + places.room, 1 + nodes), padded

    def _padded(self) -> dict[str, np.ndarray]:
        """The prompts of the last batch, as wide as the longest one requires. [T + 1, B, L]"""
        tokens = np.asarray(self._batch.arrays.rollouts.observations["tokens"])
        longest = int((tokens != PADDING).sum(-1).max())
        return {"tokens": tokens[..., : -(-longest // BUCKET) * BUCKET]}


def flop_per_prompt(config: LanguageConfig, length: float, nodes: int) -> float:
    """Operations of a decoder's forward pass over a prompt and the nodes of a tree behind it: of matrix products only.

    Args:
      config: of the decoder.
      length: tokens of the prompt.
      nodes: of the tree of names.
    """
    return flop_of(config, length + nodes, length + nodes, 1 + nodes)


def flop_of(config: LanguageConfig, tokens: float, keys: float, predictions: int) -> float:
    """Operations of a decoder's matrix products: for tokens with `keys` keys each, and for predicted tokens."""
    inner = config.heads * config.head_size
    attention = config.width * (2 * inner + 2 * config.kv_heads * config.head_size)
    mlp = (3 if config.gated else 2) * config.width * config.mlp_size
    looking = 2 * keys * inner  # of one token: products with keys, then sums of values
    return 2.0 * (config.layers * tokens * (attention + mlp + looking) + predictions * config.width * config.vocabulary)


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
        """States, or texts, per second."""
        return rate_of(lambda: len(run()), seconds)

    def packed(self) -> np.ndarray:
        """As the policy does it. [states, names], as of the others"""
        return np.asarray(self._packed(self._params, self._prompts))

    def one_per_name(self) -> np.ndarray:
        """Each name behind a prompt of its own."""
        return np.asarray(self._plain(self._params, self._rows))

    def in_torch(self) -> Callable[[], np.ndarray]:
        """The same in transformers."""
        import torch

        model = torch_model(self._folder, nnx.merge(self._graph, self._params))
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


class Judging:
    """Ratings of messages: next tokens after texts that begin alike and share words, computed in several ways.

    Each gives log-probabilities [texts, verdicts].
    """

    def __init__(self, folder: Path):
        """`folder`: for the files of the model, which transformers reads."""
        self._folder = folder
        config = make_config("llama", WORDS, WIDTH, LAYERS, HEADS, max_position_embeddings=512)
        self._model = make_language_model(config)
        tokeniser = WordTokeniser.from_texts([" ".join(map(str, range(WORDS - 8)))])
        self._language = Language(self._model, tokeniser)
        rng = np.random.default_rng(0)
        begin = rng.integers(8, WORDS, BEGIN).tolist()
        # As messages do: half of a text is one of a few beginnings.
        starts = [rng.integers(8, WORDS, size).tolist() for size in rng.integers(2, 9, 12)]
        ends = [[*starts[rng.integers(12)], *rng.integers(8, WORDS, rng.integers(2, 9)).tolist()] for _ in range(TEXTS)]
        self._begin, self._ends = begin, ends
        self.tokens = sum(map(len, ends))
        self._shared = NextTokens(self._language, VERDICTS)

        @jax.jit
        def whole(params: Any, tokens: jax.Array, segments: jax.Array) -> jax.Array:
            model = nnx.merge(self._language.graph, params)
            last = model(tokens, segments)[np.arange(TEXTS), segments.sum(1) - 1]
            return jax.nn.log_softmax(model.logits(last))[:, np.array(VERDICTS)]

        self._whole = whole

    def shared(self) -> np.ndarray:
        """The verdicts as the backend computes them: the common beginning is read once."""
        return self._shared([[*self._begin, *end] for end in self._ends])

    def whole(self) -> np.ndarray:
        """Each text whole, padded to the longest."""
        tokens, segments = pad_rows([[*self._begin, *end] for end in self._ends], 1)
        return np.asarray(self._whole(self._language.params, tokens, segments))

    def in_torch(self) -> Callable[[], np.ndarray]:
        """In transformers, whose cache of the beginning is repeated for all texts."""
        import torch

        model = torch_model(self._folder, self._model)
        tokens, segments = (torch.from_numpy(np.asarray(array)).long() for array in pad_rows(self._ends, 1))
        mask = torch.cat([torch.ones(TEXTS, BEGIN, dtype=torch.long), segments], 1)

        def run() -> np.ndarray:
            with torch.no_grad():
                cache = model(torch.tensor([self._begin]), use_cache=True).past_key_values
                cache.batch_repeat_interleave(TEXTS)
                hidden = model.model(tokens, attention_mask=mask, past_key_values=cache).last_hidden_state
                last = hidden[torch.arange(TEXTS), segments.sum(1) - 1]
                return torch.log_softmax(model.lm_head(last), -1)[:, list(VERDICTS)].numpy()

        return run


def torch_model(folder: Path, model: Any) -> Any:
    """The same model in transformers, by way of files in `folder`."""
    import torch
    import transformers

    write_language_model(folder, model)
    transformers.utils.logging.disable_progress_bar()
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def games_rate(config: ConfigDict, seconds: float) -> float:
    """Steps per second of the config's level in this process: random actions, and the prompts that a policy reads."""
    world = make_world(config.env.to_dict())
    vector = world.vector(GAMES, ("prompt",), seed=0, stream=SeedStream.TRAIN)
    specs = step_specs() | {"prompt": world.specs["prompt"]}
    rows = vector.open_rows({name: np.zeros((GAMES, *spec.shape), spec.dtype) for name, spec in specs.items()})
    rng = np.random.default_rng(0)
    vector.reset()

    def play() -> int:
        vector.step(rng.integers(len(world.action_names), size=GAMES).tolist(), rows)
        vector.observe(rows)
        return GAMES

    rate = rate_of(play, seconds)
    vector.close()
    return rate
