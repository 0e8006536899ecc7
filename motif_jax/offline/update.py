"""One update of an offline algorithm, for `mesh.map_update`: its inputs, its losses, and these without learning.

The state holds the policy and the values that a recipe learns, and the targets, slowly following copies. A given policy
is a separate argument, so that it is not compiled into the program as a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from motif_jax.devices.mesh import total
from motif_jax.language.model import ModelFunctions
from motif_jax.offline import mdp
from motif_jax.offline.recipes import CONSERVATIVE, MARGIN, GroupLearning, OfflineSettings, Recipe
from motif_jax.offline.values import Params, apply_head, condition, least, new_values, taken
from motif_jax.schedules import schedule
from motif_jax.transcripts.render import Rows

Sums = dict[str, jax.Array]
STEPS: str = "steps"
LEARNT: str = "learnt"
TOKENS: str = "tokens"  # counts: decisions with values, tokens cloned, all tokens but the first of each episode


class Replies(NamedTuple):
    """Replies sampled from the policy in place of each utterance of a row (CHAI)."""

    features: jax.Array  # mean of hidden states up to their end. [B, K, n, width]
    log_probs: jax.Array  # [B, K, n]
    random: jax.Array  # features drawn uniformly from [-1, 1]. [B, K, m, width]


class Play(NamedTuple):
    """Inputs of the loss of groups, for each token that the agent wrote, at the position before it. [B, T] each"""

    advantage: Any
    weight: Any  # in a mean over the whole batch; 0 where no token was written
    log_written: Any  # log probability of the token when it was written


class TranscriptBatch(NamedTuple):
    """The input of one update."""

    rows: Rows
    replies: Any = ()  # `Replies`, for recipes with values of replies
    play: Any = ()  # `Play`, for recipes that learn from games they play


class Weights(NamedTuple):
    """Parameters by their use."""

    learnt: Params  # those of "policy", "condition", "trunk", "v", "q" that the recipe learns
    target: Params  # "trunk", "q": slowly following copies
    given: Params  # "policy" if it is not learnt

    @property
    def policy(self) -> Params:
        """Parameters of the policy, learnt or given."""
        return self.learnt["policy"] if "policy" in self.learnt else self.given["policy"]


class OfflineState(NamedTuple):
    """Everything that an update changes."""

    learnt: Params  # see `Weights`
    target: Params
    optimizer: Any
    step: jax.Array  # updates done. int32


def make_optimizer(settings: OfflineSettings) -> optax.GradientTransformation:
    """Makes AdamW with gradient clipping, linear warmup and a learning rate that falls."""
    rate, warmup = settings.learning_rate, settings.warmup_steps
    steps = max(settings.total_steps - warmup, 1) if settings.total_steps else 0
    falling = schedule(settings.learning_rate_decay, rate, settings.learning_rate_end, steps)
    if warmup:
        falling = optax.join_schedules([optax.linear_schedule(0.0, rate, warmup), falling], [warmup])
    adam = optax.adamw(falling, settings.adam_b1, settings.adam_b2, settings.adam_eps,
                       weight_decay=settings.weight_decay)  # fmt: skip
    if not settings.max_gradient_norm:
        return adam
    return optax.chain(optax.clip_by_global_norm(settings.max_gradient_norm), adam)


def init_state(
    key: jax.Array, language: ModelFunctions, recipe: Recipe, settings: OfflineSettings, policy: Params, trunk: Params,
    bias: float = 0.0,
) -> OfflineState:  # fmt: skip
    """Makes the state before the first update.

    `policy`: in the state only if the recipe learns it. `bias`: initial output of the values, about the mean return.
    """
    learnt: dict[str, Any] = {}
    target: dict[str, Any] = {}
    if recipe.learns_policy:
        learnt["policy"] = policy
    if recipe.conditioned:
        learnt["condition"] = {name: jnp.zeros(language.width) for name in ("kernel", "bias")}
    if recipe.has_values:
        learnt |= new_values(key, language, recipe, bias, settings.double_q)
        target["q"] = learnt["q"]
    if recipe.has_trunk:
        learnt["trunk"] = target["trunk"] = trunk
    learnt, target = jax.tree.map(jnp.array, (learnt, target))  # copies, because the update donates its state
    return OfflineState(learnt, target, make_optimizer(settings).init(learnt), jnp.zeros((), jnp.int32))


class Term(NamedTuple):
    """The declaration of a sum over a batch: a term of the loss, or a metric."""

    weight: float | None  # in the loss; METRIC: it is not learnt
    divisor: str = STEPS  # the count by which the sum is divided


METRIC = None


class Objective(NamedTuple):
    """The loss that an update minimises, as sums over a batch and their divisors."""

    terms: dict[str, Term]  # all sums by name
    sum_terms: Callable[[Weights, TranscriptBatch], Sums]
    counts: Callable[[TranscriptBatch], Sums]  # their divisors

    def sums(self, weights: Weights, batch: TranscriptBatch) -> Sums:
        """Sums the terms over a batch; raises ValueError, when compiled, if other terms are declared."""
        sums = self.sum_terms(weights, batch)
        for name in sums.keys() ^ self.terms.keys():
            what = "is computed, but has no weight" if name in sums else "has a weight, but is not computed"
            raise ValueError(f"the term {name!r} {what} ({__name__}.terms_of; METRIC: of what is not learnt)")
        return sums

    def zeros(self) -> Sums:
        """Returns the sums and counts before the first batch."""
        return {name: jnp.zeros(()) for name in (*self.terms, STEPS, LEARNT, TOKENS)}

    def means(self, sums: Mapping[str, Any], counts: Mapping[str, Any]) -> dict[str, Any]:
        return {name: sums[name] / counts[term.divisor] for name, term in self.terms.items()}

    def loss(self, means: Mapping[str, Any]) -> Any:
        return sum(term.weight * means[name] for name, term in self.terms.items() if term.weight is not METRIC)


def objective_of(
    language: ModelFunctions, recipe: Recipe, settings: OfflineSettings,
    merge: Callable[[Weights], Weights] = lambda weights: weights,
) -> Objective:  # fmt: skip
    """The objective of a recipe that learns from transcripts; `merge` adds learnt low-rank additions to the weights."""
    return Objective(
        terms_of(recipe, settings),
        lambda weights, batch: sum_terms(language, recipe, settings, merge(weights), batch),
        lambda batch: count(recipe, batch),
    )


def make_update(objective: Objective, settings: OfflineSettings) -> Callable[..., Any]:
    """Makes the step `update(state, given, batch) -> (state, metrics)`, for `mesh.map_update(..., num_constants=1)`.

    Metrics are means over the decisions of the whole batch. If the loss or a gradient is not finite, only `step`
    changes, and `metrics["finite"]` is 0.
    """
    optimizer, parts = make_optimizer(settings), settings.num_parts

    def loss_of(
        learnt: Params, target: Params, given: Params, batch: TranscriptBatch, counts: Sums
    ) -> tuple[jax.Array, Sums]:
        means = objective.means(objective.sums(Weights(learnt, target, given), batch), counts)
        return jnp.asarray(objective.loss(means)), means

    def update(state: OfflineState, given: Params, batch: TranscriptBatch) -> tuple[OfflineState, Sums]:
        counts = {name: jnp.maximum(value, 1.0) for name, value in total(objective.counts(batch)).items()}

        def part_of(part: TranscriptBatch) -> tuple[Params, Sums]:
            slope = jax.grad(loss_of, has_aux=True)
            return slope(state.learnt, state.target, given, part, counts)

        if parts == 1:
            gradients, means = part_of(batch)
        else:
            split = jax.tree.map(lambda array: array.reshape(parts, -1, *array.shape[1:]), batch)
            shapes = jax.eval_shape(part_of, jax.tree.map(lambda array: array[0], split))

            def add(sums: Any, part: TranscriptBatch) -> tuple[Any, None]:
                return jax.tree.map(jnp.add, sums, part_of(part)), None

            (gradients, means), _ = jax.lax.scan(add, optax.tree.zeros_like(shapes), split)
        gradients, means = total((gradients, means))
        loss = jnp.asarray(objective.loss(means))
        changes, optimizer_state = optimizer.update(gradients, state.optimizer, state.learnt)
        learnt = optax.apply_updates(state.learnt, changes)
        norms = {"gradient_norm": optax.tree.norm(gradients), "update_norm": optax.tree.norm(changes)}
        finite = jnp.isfinite(jnp.stack([loss, *norms.values()])).all()
        new = OfflineState(learnt, follow(state.target, learnt, state.step + 1, settings), optimizer_state, state.step)
        new = jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, state)
        metrics = means | norms | {"loss": loss, "finite": finite}
        return new._replace(step=state.step + 1), {name: jnp.float32(value) for name, value in metrics.items()}

    return update


def follow(target: Params, learnt: Params, step: jax.Array, settings: OfflineSettings) -> Params:
    """Moves the targets towards the learnt parameters by Polyak averaging, or copies them at some steps."""
    source = {name: learnt[name] for name in target}
    if settings.hard_update_every:
        copies = step % settings.hard_update_every == 0
        return jax.tree.map(lambda slow, fast: jnp.where(copies, fast, slow), target, source)
    share = settings.polyak
    return jax.tree.map(lambda slow, fast: (1 - share) * slow + share * fast, target, source)


def make_measure(objective: Objective) -> Callable[..., Any]:
    """Makes `measure(sums, state, given, batch) -> sums`, for `mesh.map_update(measure, ..., num_constants=2)`.

    It adds the batch's sums and counts to those of earlier batches.
    """

    def measure(sums: Sums, state: OfflineState, given: Params, batch: TranscriptBatch) -> Sums:
        added = objective.sums(Weights(state.learnt, state.target, given), batch) | objective.counts(batch)
        return jax.tree.map(jnp.add, sums, total({name: jnp.float32(value) for name, value in added.items()}))

    return measure


def means_of(sums: dict[str, float], objective: Objective) -> dict[str, float]:
    """Returns the means and the loss from sums over any number of batches."""
    means = objective.means(sums, {name: max(value, 1.0) for name, value in sums.items()})
    return means | {"loss": objective.loss(means)}


# ---- losses: one number per decision
#
# q and v are predictions, y their target. The arrays have equal shapes [...]; arrays over all actions have one more
# axis, [..., A]. Squares have no factor of one half, as in the code of ILQL.


def next_tokens(rows: Rows) -> jax.Array:
    """Returns the token after each position; undefined at the last position. [B, T]"""
    return jnp.roll(jnp.asarray(rows.tokens), -1, 1)


def masked_sum(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Sums the values where the mask is true, ignoring others, even NaN."""
    return jnp.where(mask, values, 0.0).sum()


def in_chunks(read: Callable[[jax.Array, jax.Array], Any], chunk: int) -> Callable[[jax.Array, jax.Array], Any]:
    """Applies `read` to chunks of positions, to limit the memory of arrays over all tokens; gradients recompute them.

    `read`: (hidden [..., width], action [...]) -> a tree of arrays [...]. `chunk`: positions; 0: all.
    """
    if not chunk:
        return read

    def mapped(hidden: jax.Array, action: jax.Array) -> Any:
        shape, size = action.shape, action.size
        padding = -size % chunk
        flat = jnp.pad(hidden.reshape(size, -1), ((0, padding), (0, 0))).reshape(-1, chunk, hidden.shape[-1])
        actions = jnp.pad(action.reshape(size), (0, padding)).reshape(-1, chunk)
        results = jax.lax.map(lambda part: jax.checkpoint(read)(*part), (flat, actions))
        return jax.tree.map(lambda array: array.reshape(-1)[:size].reshape(shape), results)

    return mapped


def expectile_loss(v: jax.Array, y: jax.Array, expectile: float) -> jax.Array:
    """|expectile - 1{y < v}| (y - v)^2: for expectiles near 1, its minimum is near the maximum of y.

    Implicit Q-learning, arXiv 2110.06169, equation 5. An expectile of 0.5 gives the mean, the value of the recorded
    policy ("single step", SARSA).
    """
    chex.assert_equal_shape([v, y])
    y = jax.lax.stop_gradient(y)
    return jnp.abs(expectile - (y < v)) * jnp.square(y - v)


def bootstrap(reward: jax.Array, terminal: jax.Array, following: jax.Array, discount: float) -> jax.Array:
    """y = r + discount (1 - terminal) following"""
    chex.assert_equal_shape([reward, terminal, following])
    return reward + discount * (1.0 - terminal) * following


def cross_entropy(logits: jax.Array, action: jax.Array) -> jax.Array:
    """-log softmax(logits)[action]"""
    return jax.nn.logsumexp(logits, -1) - taken(logits, action)


def replies_loss(
    q: jax.Array, q_replies: jax.Array, log_probs: jax.Array, q_random: jax.Array, log_density: float
) -> jax.Array:
    """log sum exp over {Q(reply) - log p(reply), Q(random) - log p(random)} - Q(recorded): CQL over utterances.

    CHAI, arXiv 2204.08426. Two corrections of its code: it divides by the number of arguments, where the logarithm is
    due, and uses log 2d as the log density of random features in [-1, 1]^d, which is -d log 2.

    `q`: of the recorded utterance [...]. `q_replies`, `log_probs`: of sampled replies, under the policy that sampled
    them [..., n]. `q_random`: of random features [..., m].
    """
    chex.assert_equal_shape([q_replies, log_probs])
    weighted = jnp.concatenate([q_replies - log_probs, q_random - log_density], -1)
    return jax.nn.logsumexp(weighted, -1) - jnp.log(weighted.shape[-1]) - q


# ---- the objective of a recipe on a batch
# Sums over decisions and their counts instead of means, so that a batch split over devices or parts has the same loss.
# A term's mean is its sum over all parts, divided by its count over all parts.


def count(recipe: Recipe, batch: TranscriptBatch) -> Sums:
    """Returns the divisors of the sums of `sum_terms`."""
    rows = batch.rows
    segments = jnp.asarray(rows.segments)
    predicted = (segments[:, 1:] > 0) & (segments[:, 1:] == segments[:, :-1])  # all but the first of each episode
    steps = steps_of(recipe, rows).mask.sum() if recipe.has_values else 0
    return {STEPS: jnp.float32(steps), LEARNT: jnp.float32(rows.is_action.sum()), TOKENS: jnp.float32(predicted.sum())}


def terms_of(recipe: Recipe, settings: OfflineSettings) -> dict[str, Term]:
    """Declares all that `sum_terms` computes."""
    terms = {}
    if recipe.learns_policy:
        tokens = TOKENS if settings.mean_over_all_tokens else LEARNT
        terms = {"policy": Term(settings.policy_weight, tokens), "accuracy": Term(METRIC, LEARNT)}
    if recipe.has_values:
        terms |= {"q": Term(settings.q_weight), "q_mean": Term(METRIC)}
    if recipe.has_trunk:
        metrics = "value_mean", "target_mean", "advantage_mean", "positive_advantage"
        terms |= {"v": Term(settings.v_weight)} | dict.fromkeys(metrics, Term(METRIC))
    return terms | {name: Term(weight) for name, (weight, _) in token_losses(recipe, settings).items()}


def sum_terms(
    language: ModelFunctions, recipe: Recipe, settings: OfflineSettings, weights: Weights, batch: TranscriptBatch
) -> Sums:
    """Sums the terms of the loss and additional metrics over a batch, by name. [] each"""
    sums: Sums = {}
    advantage = None
    if recipe.of_replies:
        sums |= reply_terms(language, settings, weights, batch)
    elif recipe.has_values:
        sums, advantage = value_terms(language, recipe, settings, weights, batch.rows)
    if recipe.learns_policy:
        sums |= _policy_terms(language, recipe, settings, weights, batch.rows, advantage)
    return sums


def _policy_terms(
    language: ModelFunctions, recipe: Recipe, settings: OfflineSettings, weights: Weights, rows: Rows,
    advantage: jax.Array | None,
) -> Sums:  # fmt: skip
    added = None
    if recipe.conditioned:
        first = mdp.first_of_segment(rows.segments) == jnp.arange(rows.tokens.shape[1])
        returns = mdp.episode_returns(rows) / settings.reward_scale
        added = condition(weights.learnt["condition"], returns, first & (rows.segments > 0))
    policy, mask = weights.policy, rows.is_action

    def read(hidden: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = language.logits(policy, hidden)
        return cross_entropy(logits, action), logits.argmax(-1) == action

    hidden = language.hidden(policy, rows.tokens, rows.segments, added)
    loss, right = in_chunks(read, settings.chunk)(hidden, next_tokens(rows))
    if advantage is not None and recipe.by_advantage:
        steps = steps_of(recipe, rows)
        has_advantage = steps.mask
        if recipe.per_utterance:  # all tokens of an utterance share its weight, which is at its last token
            both = advantage, has_advantage
            advantage, has_advantage = (jnp.take_along_axis(array, steps.next_step, 1) for array in both)
        beta = settings.advantage_beta
        if settings.advantage_sign:
            weight = jnp.where(advantage > 0, beta, 1.0 - beta)
        else:  # AWAC, arXiv 2006.09359
            weight = jnp.minimum(jnp.exp(beta * advantage), settings.advantage_weight)
        loss *= jax.lax.stop_gradient(weight)
        mask = mask & has_advantage
    return {"policy": masked_sum(loss, mask), "accuracy": masked_sum(right, rows.is_action)}


def steps_of(recipe: Recipe, rows: Rows) -> mdp.Decisions:
    """Returns the decisions whose values a recipe learns."""
    if recipe.per_token:
        return mdp.token_steps(rows)
    return mdp.utterance_steps(rows, followed=recipe.of_replies)


def value_terms(
    language: ModelFunctions, recipe: Recipe, settings: OfflineSettings, weights: Weights, rows: Rows
) -> tuple[Sums, jax.Array]:
    """Sums losses and metrics over decisions; also returns the target Q - V of the actions at `steps_of`. [B, T]"""
    learnt, target = weights.learnt, weights.target
    steps, action = steps_of(recipe, rows), next_tokens(rows)
    hidden = language.hidden(learnt["trunk"], rows.tokens, rows.segments, None)  # [B, T, width]
    hidden_target = language.hidden(target["trunk"], rows.tokens, rows.segments, None)
    reward = steps.reward / settings.reward_scale

    # ---- targets, without a gradient
    value = apply_head(learnt["v"], hidden)[..., 0]  # [B, T]
    of_target = _read_targets(target["q"], hidden_target, action, recipe, settings.chunk)
    of_target = {name: jnp.clip(q, settings.value_min, settings.value_max) for name, q in of_target.items()}
    q_target = of_target["q"]
    if recipe.soft_max:
        policy = jax.lax.stop_gradient(weights.policy)
        logits = language.logits(policy, language.hidden(policy, rows.tokens, rows.segments, None))
        reward += -cross_entropy(logits, action)
    following = jnp.take_along_axis(of_target.get("max", value), steps.next_state, 1)
    y = jax.lax.stop_gradient(bootstrap(reward, jnp.float32(steps.terminal), following, settings.discount))
    v = jnp.take_along_axis(value, steps.state, 1)
    goal = q_target
    if recipe.from_returns:
        goal = mdp.returns_to_go(rows, settings.discount) / settings.reward_scale

    # ---- losses
    q_loss = optax.huber_loss if recipe.soft_max else optax.squared_error
    read = _read_heads(learnt["q"], hidden, action, recipe, settings)
    sums = {
        "v": masked_sum(expectile_loss(v, goal, recipe.expectile or settings.expectile), steps.mask),
        "q": masked_sum(_add([q_loss(q, y) for q in read["q"]]), steps.mask),
        "value_mean": masked_sum(v, steps.mask),
        "q_mean": masked_sum(_add(read["q"]) / len(read["q"]), steps.mask),
        "target_mean": masked_sum(q_target, steps.mask),
        "advantage_mean": masked_sum(q_target - v, steps.mask),
        "positive_advantage": masked_sum(q_target > v, steps.mask),
    }
    for name in token_losses(recipe, settings):
        sums[name] = masked_sum(_add(read[name]), steps.mask)
    return sums, jax.lax.stop_gradient(q_target - v)


def reply_terms(language: ModelFunctions, settings: OfflineSettings, weights: Weights, batch: TranscriptBatch) -> Sums:
    """Sums the losses of CHAI's Q, a function of the mean of a given model's hidden states."""
    rows, replies = batch.rows, batch.replies
    steps = mdp.utterance_steps(rows, followed=True)
    policy = jax.lax.stop_gradient(weights.policy)
    hidden = language.hidden(policy, rows.tokens, rows.segments, None).astype(jnp.float32)
    first = mdp.first_of_segment(rows.segments)
    positions = jnp.arange(rows.tokens.shape[1])
    before = jnp.pad(jnp.cumsum(hidden, 1), ((0, 0), (1, 0), (0, 0)))
    since = jnp.take_along_axis(before, first[..., None], 1)
    feature = (before[:, 1:] - since) / (positions - first + 1)[..., None]  # [B, T, width]

    # ---- the sampled replies of each utterance, and of the next
    ends = jnp.pad(rows.closes, ((0, 0), (1, 0)))[:, :-1]
    number = jnp.clip(jnp.cumsum(ends, 1) - 1, 0, replies.log_probs.shape[1] - 1)  # of the utterance that ends there
    target = least([apply_head(head, replies.features)[..., 0] for head in weights.target["q"]])  # [B, K, n]
    best = jnp.take_along_axis(target.max(-1), number, 1)  # [B, T]
    following = jnp.take_along_axis(best, steps.next_step, 1)
    reward = steps.reward / settings.reward_scale
    y = bootstrap(reward, jnp.float32(steps.terminal), following, settings.discount)
    sums: Sums = {"q": jnp.zeros(()), "conservative": jnp.zeros(()), "q_mean": jnp.zeros(())}
    density = -language.width * math.log(2.0)
    for head in weights.learnt["q"]:
        q = apply_head(head, feature)[..., 0]
        at_replies, at_random = (
            jnp.take_along_axis(apply_head(head, array)[..., 0], number[..., None], 1)
            for array in (replies.features, replies.random)
        )
        log_probs = jnp.take_along_axis(replies.log_probs, number[..., None], 1)
        conservative = replies_loss(q, at_replies, log_probs, at_random, density)
        sums["q"] += masked_sum(optax.squared_error(q, y), steps.mask)
        sums["conservative"] += masked_sum(conservative, steps.mask)
        sums["q_mean"] += masked_sum(q, steps.mask) / len(weights.learnt["q"])
    return sums


def _read_heads(
    heads: list[Params], hidden: jax.Array, action: jax.Array, recipe: Recipe, settings: OfflineSettings
) -> dict[str, list[jax.Array]]:
    """Returns, for each Q head, its value of the chosen action and its losses over all tokens. [B, T] each"""
    if recipe.per_utterance:
        return {"q": [apply_head(head, hidden)[..., 0] for head in heads]}

    def read(hidden: jax.Array, action: jax.Array) -> dict[str, list[jax.Array]]:
        alls = [apply_head(head, hidden) for head in heads]
        terms = {"q": [taken(q_all, action) for q_all in alls]}
        for name, (_, loss) in token_losses(recipe, settings).items():
            terms[name] = [loss(q_all, action) for q_all in alls]
        return terms

    return in_chunks(read, settings.chunk)(hidden, action)


def _read_targets(
    heads: list[Params], hidden: jax.Array, action: jax.Array, recipe: Recipe, chunk: int
) -> dict[str, jax.Array]:
    """Returns the targets' smaller Q of the chosen action, and its plain or soft maximum over tokens. [B, T]"""
    if recipe.per_utterance:
        return {"q": least([apply_head(head, hidden)[..., 0] for head in heads])}

    def read(hidden: jax.Array, action: jax.Array) -> dict[str, jax.Array]:
        smaller = least([apply_head(head, hidden) for head in heads])
        targets = {"q": taken(smaller, action)}
        if recipe.hard_max:
            targets["max"] = smaller.max(-1)
        if recipe.soft_max:
            targets["max"] = jax.nn.logsumexp(smaller, -1)
        return targets

    return jax.lax.stop_gradient(in_chunks(read, chunk)(hidden, action))


def token_losses(
    recipe: Recipe, settings: OfflineSettings
) -> dict[str, tuple[float, Callable[[jax.Array, jax.Array], jax.Array]]]:
    """Returns weight and function (Q of all tokens, the recorded one) of Q's losses beside that of its target."""
    added: dict[str, Any] = {}
    if CONSERVATIVE.when(recipe, settings):
        # The cross-entropy of the recorded token under softmax(Q / temperature), which lowers Q of others (CQL).
        temperature = settings.conservative_temperature
        loss = lambda q_all, action: cross_entropy(q_all / temperature, action)  # noqa: E731
        added["conservative"] = settings.conservative_weight, loss
    if MARGIN.when(recipe, settings):

        def margin_loss(q_all: jax.Array, action: jax.Array) -> jax.Array:
            gap = q_all - taken(q_all, action)[..., None] + settings.margin
            return jnp.square(jnp.maximum(gap, 0.0)).sum(-1)  # over all actions

        added["margin"] = settings.margin_weight, margin_loss
    return added


def _add(arrays: list[jax.Array]) -> jax.Array:
    return arrays[0] if len(arrays) == 1 else arrays[0] + arrays[1]


# The loss of grpo and gigpo on games that the policy has just played by writing (arXiv 2402.03300, 2505.10978).
#
# A row has one episode. Each token has its probability now, its probability when it was written, and an advantage A
# relative to a group of episodes (learner/losses.py):
#
#     ratio = p / p_written     loss = - mean min(ratio A, clip(ratio) A) + reference_coefficient * mean ratio KL
#
# KL is the divergence from the policy at the start, by the estimate exp(d) - d - 1 with d = log p_start - log p (k3).
# With the ratio, its gradient is that of the divergence (arXiv 2512.02556).

LARGEST = 20.0  # limit of the absolute logarithm of a ratio, to avoid overflow
BATCH = "batch"  # name of the count that divides the sums, which is 1: weights are those of a mean


def restricted(language: ModelFunctions, allowed: jax.Array, temperature: float) -> ModelFunctions:
    """The language model with the logits of sampling: only allowed tokens, at a temperature."""

    def logits(params: Params, hidden: jax.Array) -> jax.Array:
        return jnp.where(allowed, language.logits(params, hidden) / temperature, -jnp.inf)

    return language._replace(logits=logits)


def group_objective(language: ModelFunctions, group: GroupLearning, chunk: int) -> Objective:
    """The objective of grpo and gigpo, for a `restricted` model; `chunk`: tokens whose logits are kept at a time."""
    names = "ratio_deviation", "clipped", "entropy"
    terms = {"group": Term(1.0, BATCH)} | dict.fromkeys(names, Term(METRIC, BATCH))
    if group.reference_coefficient:
        terms["reference"] = Term(group.reference_coefficient, BATCH)
    return Objective(
        terms,
        lambda weights, batch: group_terms(language, group, chunk, weights, batch),
        lambda batch: {BATCH: 1 / total(jnp.ones(()))},
    )


def group_terms(
    language: ModelFunctions, group: GroupLearning, chunk: int, weights: Weights, batch: TranscriptBatch
) -> Sums:
    """Sums the loss and metrics over a batch. [] each"""
    rows, play = batch.rows, batch.play
    action, counted = next_tokens(rows), play.weight > 0

    def read(params: Params) -> Any:
        def log_probs(hidden: jax.Array, action: jax.Array) -> Any:
            logits = language.logits(params, hidden)
            odds = jax.lax.stop_gradient(jax.nn.log_softmax(logits))
            entropy = -jnp.where(odds > -jnp.inf, jnp.exp(odds) * odds, 0.0).sum(-1)
            return -cross_entropy(logits, action), entropy

        return in_chunks(log_probs, chunk)(language.hidden(params, rows.tokens, rows.segments, None), action)

    log_now, entropy = read(weights.policy)
    apart = jnp.where(counted, log_now - play.log_written, 0.0)
    if group.ratio == "episode":
        length = jnp.maximum(counted.sum(1, keepdims=True), 1)
        apart = jnp.broadcast_to(apart.sum(1, keepdims=True) / length, apart.shape)
    ratio = jnp.exp(jnp.clip(apart, -LARGEST, LARGEST))
    clipped = jnp.clip(ratio, 1 - group.clip_low, 1 + (group.clip_high or group.clip_low))
    surrogate = jnp.minimum(ratio * play.advantage, clipped * play.advantage)

    def mean(values: jax.Array) -> jax.Array:
        return masked_sum(jnp.where(counted, values, 0.0) * play.weight, counted)

    sums = {
        "group": -mean(surrogate),
        "ratio_deviation": mean(jnp.abs(ratio - 1)),
        "clipped": mean(ratio != clipped),
        "entropy": mean(entropy),
    }
    if group.reference_coefficient:
        log_start, _ = read(weights.given["reference"])
        ahead = jnp.where(counted, jax.lax.stop_gradient(log_start) - log_now, 0.0)
        sums["reference"] = mean(ratio * (jnp.exp(ahead) - ahead - 1))
    return sums
