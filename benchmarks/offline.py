"""Offline reinforcement learning of language (ILQL): rendering, updates and generation, each beside a limit or a twin.

The model and the games are those of configs/ilql_quickstart.py. A figure's twin is measured in the same run: updates
beside plain PyTorch and beside the largest matrix product, generation beside one conversation at a time and beside a
decoder without a cache, rendering beside copies of arrays of the same sizes. Updates and generation of texts of
different lengths are also measured without packing.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

from benchmarks.device import count_flops, find_cpu, is_accelerated, matrix_product, mesh_of
from benchmarks.rows import Row, Rows, medians, rate_of, take_turns
from motif_jax.actors.recorder import play_episodes
from motif_jax.devices.mesh import make_mesh, map_update, replicate, shard
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.worlds import make_world
from motif_jax.language import generation
from motif_jax.language.config import make_config
from motif_jax.language.model import as_functions, make_language_model
from motif_jax.offline.recipes import OfflineSettings, recipe_of
from motif_jax.offline.update import TranscriptBatch, init_state, make_update, objective_of
from motif_jax.offline.values import apply_head, least
from motif_jax.policies.decoding import Decoding
from motif_jax.policies.writing import ValueModel, ValueWriter, allowed_tokens
from motif_jax.tokens import LetterTokeniser, Tokeniser
from motif_jax.transcripts.render import TEMPLATES, LiveRenderer, Renderer, make_batch, plan_buckets, planner
from motif_jax.transcripts.store import turns_of

ENV: dict[str, Any] = {"world": "wordle", "options": '{"words": "small"}'}
PLAYER = "repeat*0.6+candidate*0.4"
WIDTH, LAYERS, HEADS = 96, 2, 4
LONGEST = 74  # tokens of a game, at most
EPISODES = 2000
ROWS = 24  # of a batch, packed
AT_ONCE = 64  # conversations that are continued together
SAID = 6  # tokens of a guess
LONG = 100  # tokens of a text of any length, at most
RATIOS = {  # what is compared with what
    "offline.update_over_torch": ("offline.update", "offline.torch"),
    "generation.batched_over_one": ("generation.tokens", "generation.tokens.one_at_a_time"),
    "generation.cached_over_full": ("generation.tokens", "generation.tokens.without_cache"),
    "generation.packed_over_padded": ("generation.ragged", "generation.ragged.padded"),
    "offline.packed_over_padded": ("offline.update", "offline.update.padded"),
    "transcripts.render_over_copy": ("transcripts.render", "transcripts.copy"),
}


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `transcripts.*`, `offline.*` and `generation.*`."""
    find_cpu()  # now, as operations are counted after games have been played
    rows, seconds = Rows(), config.benchmark.seconds
    subject = Subject()
    counted: dict[str, Callable[[], int]] = {
        "transcripts.render": subject.render,
        "transcripts.copy": subject.copy,
        "offline.update": subject.update,
        "offline.update.padded": partial(subject.update, False),
        "generation.tokens": partial(subject.generate, AT_ONCE),
        "generation.tokens.one_at_a_time": partial(subject.generate, 1),
        "generation.tokens.without_cache": subject.generate_in_full,
        "generation.ragged": partial(subject.generate_ragged, True),
        "generation.ragged.padded": partial(subject.generate_ragged, False),
    }
    if importlib.util.find_spec("torch") and not is_accelerated():
        counted["offline.torch"] = torch_update(subject.renderer, ROWS * 2, subject.model.config.vocabulary)
    runs: dict[str, Callable[[], float]] = {name: partial(rate_of, run, seconds) for name, run in counted.items()}
    found = take_turns(runs | {"offline.matrix_product": matrix_product}, config.benchmark.repeats)
    rates = medians(found)
    model = {"width": WIDTH, "layers": LAYERS, "vocabulary": subject.model.config.vocabulary}
    for name in counted:
        # PyTorch's rows are not packed: twice as many have as many tokens.
        sizes = {"batch": ROWS * 2 if name == "offline.torch" else ROWS, "length": LONGEST}
        if name.startswith("generation"):
            sizes = {"conversations": AT_ONCE}
        sizes |= {"devices": subject.mesh.size} | ({} if "transcripts" in name else model)
        rows.add(name, rates[name], "tokens/s", **sizes)
    product = rates["offline.matrix_product"]
    tokens = np.mean([subject.batch(step).rows.is_action.sum() for step in range(len(subject.plan))])
    used = rates["offline.update"] / float(tokens) * subject.flops / 1e9
    limit: dict[str, Any] = {"gflop_per_s": round(used, 1), "matrix_product": round(product, 1)}
    rows.add("offline.share_of_limit", 100 * used / product, "%", **limit)
    for name, (one, other) in RATIOS.items():
        if other in found:
            rows.compare(name, found[one], found[other])
    return rows


def new_model(
    recipe: str, tokeniser: Tokeniser, live: LiveRenderer, allowed: np.ndarray, positions: int = 2 * LONGEST,
    seed: int = 0,
) -> ValueModel:  # fmt: skip
    """A new language model without values. `allowed`: which tokens it may write. [V]"""
    config = make_config("gpt2", tokeniser.size, WIDTH, LAYERS, HEADS, n_positions=positions)
    graph, params = nnx.split(make_language_model(config, seed=seed))
    return ValueModel(config, graph, params, {}, {}, recipe_of(recipe), tokeniser, live, allowed)


def peer_task(file: Path, renderer: Renderer, settings: OfflineSettings, **arrays: Any) -> dict[str, Any]:
    """What a peer needs to learn as we do; writes all transcripts, and these `arrays`, to `file`."""
    rows = renderer.rows(np.arange(len(renderer.lengths)), LONGEST)
    lengths = (rows.segments > 0).sum(1)
    np.savez(file, tokens=rows.tokens, lengths=lengths, is_action=rows.is_action, reward=rows.reward, **arrays)
    names = ("learning_rate", "discount", "expectile", "polyak", "conservative_weight")
    task: dict[str, Any] = {name: getattr(settings, name) for name in names}
    return task | {"transcripts": str(file.absolute()), "width": WIDTH, "layers": LAYERS, "heads": HEADS}


class Subject:
    """What is measured: transcripts, their batches, a new model with new values, and conversations to continue."""

    def __init__(self) -> None:
        world = make_world(ENV)
        assert isinstance(world, TextWorld)
        episodes = list(play_episodes(world, PLAYER, range(EPISODES), seed=0))
        recorded = turns_of(episodes)
        tokeniser, template = LetterTokeniser.from_texts(recorded.texts), TEMPLATES["marks"]
        self.renderer = Renderer(recorded, tokeniser, template)
        self.plan = planner(
            self.renderer, np.arange(EPISODES), packed=True, max_length=LONGEST, batch_rows=ROWS, seed=0
        )(0)
        self.padded = plan_buckets(np.arange(EPISODES), self.renderer.lengths, [LONGEST], ROWS, seed=0, epoch=0)

        # ---- the model and the update
        live = LiveRenderer(tokeniser, template)
        model = new_model("ilql", tokeniser, live, allowed_tokens(tokeniser.size, self.renderer.emitted(), live))
        params = model.policy
        self.language, self.mesh, settings = as_functions(model.graph, model.config), make_mesh(), OfflineSettings()
        learn = make_update(objective_of(self.language, model.recipe, settings), settings)
        update = map_update(learn, self.mesh, batch_axis=0, num_constants=1)
        state = init_state(jax.random.key(0), self.language, model.recipe, settings, params, params, -2.0)
        # Copies, as the update is given the memory of its state.
        heads = jax.tree.map(np.array, {name: state.learnt[name] for name in ("v", "q")})
        self.model = model._replace(
            target={"trunk": params, "q": heads["q"]}, online={"trunk": params, "v": heads["v"]}
        )
        self._state, self._given = replicate(state, self.mesh), replicate({"policy": params}, self.mesh)
        self._steps = itertools.cycle(range(len(self.plan)))
        self._update = update.lower(self._state, self._given, self.batch(0)).compile()
        counted = map_update(learn, mesh_of(find_cpu()), batch_axis=0, num_constants=1)
        self.flops = count_flops(counted, self._state, self._given, self.batch(0))  # of an update

        # ---- conversations after two guesses
        self.contexts: list[list[int]] = []
        for episode in episodes:
            turns = episode.turns[:4]
            tokens = live.begin("")
            for turn in turns:
                tokens = tokens + (live.said(turn.text) if turn.is_action else live.heard(turn.text))
            if len(turns) == 4 and len(episode.turns) > 4 and len(self.contexts) < AT_ONCE:
                self.contexts.append(tokens)
        self.writer = ValueWriter(self.model)
        self.writers = {packed: ValueWriter(self.model) for packed in (True, False)}
        self._full = jax.jit(self._choose_next)

    def batch(self, step: int, packed: bool = True) -> TranscriptBatch:
        """One batch on the devices, packed or with one episode per row."""
        plan = self.plan if packed else self.padded
        return shard(TranscriptBatch(make_batch(self.renderer, plan, step)), self.mesh)

    def update(self, packed: bool = True) -> int:
        """Makes a batch, and one update; returns how many of the agent's tokens are in the batch."""
        batch = self.batch(next(self._steps), packed)
        self._state, metrics = self._update(self._state, self._given, batch)
        jax.block_until_ready(metrics)
        return int(np.asarray(batch.rows.is_action).sum())

    def render(self) -> int:
        """Renders an epoch; returns how many tokens that were."""
        return sum(
            int((make_batch(self.renderer, self.plan, step).segments > 0).sum()) for step in range(len(self.plan))
        )

    def copy(self) -> int:
        """Copies the tokens of as many batches; returns how many positions those have."""
        rows = make_batch(self.renderer, self.plan, 0)
        for _ in range(len(self.plan)):
            for array in rows:
                array.copy()
        return rows.tokens.size * len(self.plan)

    def generate(self, at_once: int) -> int:
        """Continues all conversations, `at_once` at a time; returns the number of chosen tokens."""
        decoding = Decoding("sample", beta=4.0, max_tokens=SAID, batch_size=at_once)
        replies = self.writer.write(self.contexts, decoding, jax.random.key(0), range(AT_ONCE))
        return sum(len(reply.tokens) for reply in replies)

    def generate_ragged(self, packed: bool) -> int:
        """Continues all conversations up to the end mark, or LONG tokens; returns how many tokens were chosen."""
        decoding = Decoding("sample", beta=0.0, max_tokens=LONG, batch_size=AT_ONCE)
        with patch.object(generation, "PACK_ROWS", AT_ONCE if packed else AT_ONCE + 1):  # read in tracing
            replies = self.writers[packed].write(self.contexts, decoding, jax.random.key(0), range(AT_ONCE))
        return sum(len(reply.tokens) for reply in replies)

    def generate_in_full(self) -> int:
        """The same, with whole texts read again for every token."""
        tokens = np.zeros((AT_ONCE, len(self.contexts[0]) + SAID), np.int32)
        segments = np.zeros_like(tokens)
        for row, context in enumerate(self.contexts):
            tokens[row, : len(context)], segments[row, : len(context)] = context, 1
        for number in range(SAID):
            place = len(self.contexts[0]) + number
            drawn = self._full(self.model.policy, self.model.target, tokens, segments, place - 1)
            tokens[:, place], segments[:, place] = np.asarray(drawn), 1
        return SAID * AT_ONCE

    def _choose_next(
        self, policy: Any, target: Any, tokens: jax.Array, segments: jax.Array, place: jax.Array
    ) -> jax.Array:
        logits = self.language.logits(policy, self.language.hidden(policy, tokens, segments, None)[:, place])
        hidden = self.language.hidden(target["trunk"], tokens, segments, None)[:, place]
        return (logits + 4.0 * least([apply_head(head, hidden) for head in target["q"]])).argmax(-1)


def torch_update(renderer: Renderer, batch: int, vocabulary: int) -> Callable[[], int]:
    """ILQL's update in plain PyTorch, an episode a row, padded to the longest.

    Args:
      renderer: of the transcripts; `batch` episodes are learnt from at a time.
      batch: rows.
      vocabulary: of the language model.

    Returns:
      A function that makes one update and returns how many tokens of the agent it has learnt from.
    """
    import torch
    from torch import nn

    def make_trunk() -> nn.ModuleDict:
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, 0.0, nn.functional.gelu, batch_first=True, norm_first=True
        )
        return nn.ModuleDict({
            "tokens": nn.Embedding(vocabulary, WIDTH), "places": nn.Embedding(LONGEST, WIDTH),
            "blocks": nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False),
        })  # fmt: skip

    def make_head(outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, outputs))

    def hidden(trunk: nn.ModuleDict, tokens: torch.Tensor) -> torch.Tensor:
        x = trunk["tokens"](tokens) + trunk["places"](torch.arange(tokens.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return trunk["blocks"](x, mask=mask, is_causal=True)

    trunk, v, qs = make_trunk(), make_head(1), nn.ModuleList([make_head(vocabulary), make_head(vocabulary)])
    target: Any = copy.deepcopy(nn.ModuleDict({"trunk": trunk, "qs": qs})).requires_grad_(False)
    learnt = nn.ModuleDict({"trunk": trunk, "v": v, "qs": qs})
    optimizer = torch.optim.AdamW(learnt.parameters(), lr=1e-3)
    slow: list[torch.Tensor] = [*target.parameters()]
    fast: list[torch.Tensor] = [*trunk.parameters(), *qs.parameters()]
    rng = np.random.default_rng(0)

    def update() -> int:
        rows = renderer.rows(rng.integers(len(renderer.lengths), size=batch), LONGEST)
        tokens = torch.from_numpy(rows.tokens).long()
        mask, reward = torch.from_numpy(rows.is_action), torch.from_numpy(rows.reward)
        action = tokens.roll(-1, 1)[..., None]
        following, ended = next_decision(rows.is_action, (rows.segments > 0).sum(1) - 1)
        x = hidden(trunk, tokens)
        with torch.no_grad():
            slow_x = hidden(target["trunk"], tokens)
            goal = torch.minimum(*[q(slow_x).gather(-1, action)[..., 0] for q in target["qs"]])
        value = v(x)[..., 0]
        y = reward + 0.99 * (1 - torch.from_numpy(ended)) * value.detach().gather(1, torch.from_numpy(following))
        loss = ((0.7 - (goal < value).float()).abs() * (goal - value) ** 2)[mask].mean()
        for q in qs:
            all_values = q(x)
            loss = loss + ((y - all_values.gather(-1, action)[..., 0]) ** 2)[mask].mean()
            loss = loss + 0.01 * nn.functional.cross_entropy(all_values[mask], action[..., 0][mask])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learnt.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(slow, fast, 0.005)
        return int(mask.sum())

    return update


def next_decision(is_action: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each position of rows of one episode: that of the next decision, or the last; and whether there is none."""
    size = is_action.shape[1]
    at = np.where(is_action, np.arange(size), size)
    after = np.concatenate([at[:, 1:], np.full((len(at), 1), size)], 1)
    following = np.minimum.accumulate(after[:, ::-1], 1)[:, ::-1]
    ended = following == size
    return np.minimum(following, last[:, None]), ended.astype(np.float32)
