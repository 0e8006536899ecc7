"""The table of algorithms: their learnt parts, their targets, and their decoding."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

from motif_jax.config.table import MANY_SECONDS, Flag, Number, Text, Use, Whole, deciding, value
from motif_jax.names import SCHEDULES


class Recipe(NamedTuple):
    """One algorithm, with all that is particular about it. Without one of the first two, the policy is given."""

    description: str
    clones: bool = False  # the policy learns to write the texts of the transcripts
    plays: bool = False  # the policy learns from groups of games that it plays, rather than from transcripts
    by_advantage: bool = False  # cloning is weighted by the advantage
    conditioned: bool = False  # the policy is conditioned on the episode's return
    selective: bool = False  # only the best episodes are used
    compares_visits: bool = False  # a text is also compared with others in the same moment of a group
    per_token: bool = False  # learns V and Q of tokens, on a trunk of their own
    per_utterance: bool = False  # the same of whole texts
    of_replies: bool = False  # learns Q of whole texts, on hidden states of the given policy
    hard_max: bool = False  # the value of the next state is the maximum of Q, not V
    soft_max: bool = False  # the value of the next state is the soft maximum of Q, with the policy as prior
    from_returns: bool = False  # V learns the discounted sums of the recorded rewards, not the target's Q
    expectile: float = 0.0  # of V; 0: from the config
    conservative: bool = False  # with the loss that lowers Q of other actions
    shifts: bool = False  # decoding adds beta (Q - V) to the logits of each token
    reranks: bool = False  # decoding draws several texts and writes the best
    name: str = ""  # the argument of `recipe_of`

    @property
    def learns_policy(self) -> bool:
        return self.clones or self.plays

    @property
    def has_values(self) -> bool:
        return self.has_trunk or self.of_replies

    @property
    def has_trunk(self) -> bool:
        """Whether it learns V, Q and a trunk below them."""
        return self.per_token or self.per_utterance

    @property
    def validation(self) -> Recipe:
        """The recipe whose loss on held-out transcripts is measured: cloning, if this one plays."""
        return RECIPES["bc"] if self.plays else self


RECIPES = {
    "bc": Recipe("behavioural cloning", clones=True),
    "filtered_bc": Recipe("behavioural cloning of the best episodes", clones=True, selective=True),
    "ilql": Recipe("implicit language Q-learning, per token", per_token=True, conservative=True, shifts=True),
    "utterance_ilql": Recipe("implicit language Q-learning, per utterance", per_utterance=True, reranks=True),
    "single_step": Recipe("values of the policy that was recorded (SARSA)", per_token=True, expectile=0.5,
                          conservative=True, shifts=True),
    "cql": Recipe("conservative Q-learning", per_token=True, hard_max=True, expectile=0.5, conservative=True,
                  shifts=True),
    "psi": Recipe("psi-learning: Q-learning close to the policy", per_token=True, soft_max=True, expectile=0.5,
                  shifts=True),
    "awac": Recipe("cloning weighted by advantage", clones=True, by_advantage=True, per_token=True, conservative=True),
    "utterance_awac": Recipe("cloning weighted by the advantage of the whole utterance", clones=True,
                             by_advantage=True, per_utterance=True),
    "monte_carlo": Recipe("V from recorded returns", per_token=True, from_returns=True, conservative=True,
                          shifts=True),
    "decision_transformer": Recipe("cloning, conditioned on the return", clones=True, conditioned=True),
    "grpo": Recipe("games of the policy, better or worse than others that began alike", plays=True),
    "gigpo": Recipe("the same, and texts better or worse than others in the same moment", plays=True,
                    compares_visits=True),
    "chai": Recipe("values of whole replies, over a given model", of_replies=True, conservative=True, reranks=True),
}  # fmt: skip


def recipe_of(name: str) -> Recipe:
    """Returns the recipe of NAME, or of NAME+joint, which also clones the policy; raises KeyError for another name."""
    if name not in names():
        raise KeyError(name)
    plain, joint, _ = name.partition("+")
    recipe = RECIPES[plain]._replace(name=name)
    return recipe._replace(clones=True, description=f"{recipe.description}, and cloning") if joint else recipe


def names() -> tuple[str, ...]:
    """Returns all valid names of `recipe_of`."""
    joint = [f"{name}+joint" for name, recipe in RECIPES.items() if recipe.has_trunk and not recipe.clones]
    return (*RECIPES, *joint)


# Values of the config for offline learning: of the sections train_language and train_values, and of the update.

# `when` takes a recipe and the section train_values.
VALUES = Use("recipes that learn values", lambda recipe, _: recipe.has_values)
HEADS = Use("values per token or text", lambda recipe, _: recipe.has_trunk)
EXPECTILE = Use("V by expectiles", lambda recipe, section: HEADS.when(recipe, section) and not recipe.expectile)
TOKEN = Use("values per token", lambda recipe, _: recipe.per_token)
MARGIN = Use("a positive margin_weight", lambda recipe, section: recipe.per_token and section.margin_weight > 0)
POLYAK = Use("hard_update_every 0", lambda recipe, section: recipe.has_values and not section.hard_update_every)
CONSERVATIVE = Use("recipes with CQL's term", lambda recipe, _: recipe.conservative)
BY_TOKEN = Use("CQL's term per token", lambda recipe, _: recipe.conservative and recipe.per_token)
WEIGHTED = Use("awac", lambda recipe, _: recipe.by_advantage)
UNSIGNED = Use(
    "awac without advantage_sign", lambda recipe, section: recipe.by_advantage and not section.advantage_sign
)
SCALED = Use("recipes that use rewards", lambda recipe, _: recipe.has_values or recipe.conditioned)
SELECTIVE = Use("filtered_bc", lambda recipe, _: recipe.selective)
CLONES = Use("recipes that clone", lambda recipe, _: recipe.clones)
GROUPS = Use("grpo and gigpo", lambda recipe, _: recipe.plays)
STEPS = Use("gigpo", lambda recipe, _: recipe.compares_visits)
DISCOUNTED = Use("recipes that learn values, and gigpo", lambda recipe, _: recipe.has_values or recipe.compares_visits)
POSITIVE, UNLIMITED = Number(0, above=True), Number(0, infinite=True)
SHARE, INSIDE = Number(0, 1, above=True), Number(0, 1, above=True, below=True)


@dataclass(frozen=True)
class Learning:
    """The optimizer and its loss."""

    learning_rate: float = deciding(1e-3, POSITIVE, "learning rate after the warm-up")
    learning_rate_end: float = deciding(0.1, Number(0, 1), "final share of it")
    learning_rate_decay: str = deciding("cosine", Text(tuple(SCHEDULES)), "the way to this share")
    warmup_steps: int = deciding(50, Whole(0), "updates of linear warm-up")
    weight_decay: float = deciding(0.0, Number(0), "weight decay of AdamW")
    adam_b1: float = deciding(0.9, Number(0, 1, below=True), "Adam's beta 1")
    adam_b2: float = deciding(0.999, Number(0, 1, below=True), "Adam's beta 2")
    adam_eps: float = deciding(1e-8, POSITIVE, "Adam's epsilon")
    max_gradient_norm: float = deciding(1.0, UNLIMITED, "gradient clipping: maximum global norm; 0: none")
    mean_over_all_tokens: bool = deciding(
        False, Flag(), "cloning's loss is a mean over all tokens rather than the agent's", only_for=CLONES
    )
    num_parts: int = value(1, Whole(1, 2**10), "gradient accumulation: parts of a batch, to save memory")
    chunk: int = value(0, Whole(0), "tokens per chunk of logits, or Q, to save memory; 0: all")


@dataclass(frozen=True)
class ValueTerms:
    """Values and their losses."""

    discount: float = deciding(
        0.99,
        Number(0, 1),
        "discount factor per token of the agent, with 0.99 a reward 300 tokens later counts 5 %; per text where values "
        "are of texts, and in gigpo",
        only_for=DISCOUNTED,
    )
    expectile: float = deciding(0.7, INSIDE, "expectile of V; 0.5: the mean", only_for=EXPECTILE)
    double_q: bool = deciding(True, Flag(), "use the smaller of two Q", only_for=VALUES)
    polyak: float = deciding(0.005, SHARE, "share of new parameters in the target", only_for=POLYAK)
    hard_update_every: int = deciding(
        0, Whole(0), "updates after which the target is replaced instead; 0: never", only_for=VALUES
    )
    v_weight: float = deciding(1.0, Number(0), "weight of V's loss", only_for=HEADS)
    q_weight: float = deciding(1.0, Number(0), "weight of Q's loss", only_for=VALUES)
    conservative_weight: float = deciding(0.01, Number(0), "weight of CQL's term", only_for=CONSERVATIVE)
    conservative_temperature: float = deciding(1.0, POSITIVE, "temperature of CQL's term", only_for=BY_TOKEN)
    margin_weight: float = deciding(
        0.0, Number(0), "weight of the margin loss, which keeps other tokens below", only_for=TOKEN
    )
    margin: float = deciding(0.0, Number(0), "the margin", only_for=MARGIN)
    policy_weight: float = deciding(1.0, Number(0), "weight of cloning", only_for=CLONES)
    advantage_beta: float = deciding(4.0, Number(0), "AWAC's factor of advantages in the exponent", only_for=WEIGHTED)
    advantage_weight: float = deciding(
        20.0, Number(0, above=True, infinite=True), "largest weight of a token", only_for=UNSIGNED
    )
    advantage_sign: bool = deciding(False, Flag(), "only the sign of the advantage counts", only_for=WEIGHTED)
    value_min: float = deciding(-math.inf, Number(infinite=True), "lower bound of the target's Q", only_for=HEADS)
    value_max: float = deciding(math.inf, Number(infinite=True), "upper bound of the target's Q", only_for=HEADS)
    reward_scale: float = deciding(1.0, POSITIVE, "rewards are divided by it", only_for=SCALED)


@dataclass(frozen=True)
class GroupLearning:
    """Games that the policy plays, in groups that begin alike."""

    group_size: int = deciding(8, Whole(2, 65_536), "games that begin alike, with the same seed", only_for=GROUPS)
    divide_by: str = deciding(
        "deviation", Text(("deviation", "nothing")), "divisor of the advantages in a group", only_for=GROUPS
    )
    mean_over: str = deciding(
        "tokens",
        Text(("tokens", "episodes", "limit")),
        "mean of the loss: of all tokens; of episodes; of episodes, whose sums are divided by max_length",
        only_for=GROUPS,
    )
    ratio: str = deciding(
        "token", Text(("token", "episode")), "probability ratios of tokens, or their means in episodes", only_for=GROUPS
    )
    clip_low: float = deciding(0.2, Number(0, 1), "clipping of ratios below 1", only_for=GROUPS)
    clip_high: float = deciding(0.0, UNLIMITED, "clipping of ratios above 1; 0: as clip_low", only_for=GROUPS)
    reference_coefficient: float = deciding(
        0.0, Number(0, 1e6), "weight of the divergence from the policy at the start; 0: none", only_for=GROUPS
    )
    step_weight: float = deciding(
        1.0, Number(0, 1e6), "weight of the advantages among texts in the same moment", only_for=STEPS
    )
    updates_per_round: int = deciding(1, Whole(1, 1000), "updates with the same games", only_for=GROUPS)
    rounds: int = deciding(100, Whole(1, 10**6), "rounds of batch_size games in an epoch", only_for=GROUPS)


@dataclass(frozen=True)
class OfflineSettings(Learning, ValueTerms, GroupLearning):
    """The settings of an update."""

    total_steps: int = 0  # optimizer steps over which the learning rate decays; 0: it is constant


@dataclass(frozen=True)
class Running:
    """Batches, epochs and checkpoints."""

    best_share: float = deciding(0.2, SHARE, "share of the episodes, by their return", only_for=SELECTIVE)
    batch_size: int = deciding(64, Whole(1, 2**20), "rows per batch, over all hosts")
    max_length: int = deciding(256, Whole(2, 2**20), "tokens per row; longer episodes are truncated")
    keep: str = deciding("start", Text(("start", "end")), "which part of longer episodes is kept")
    packed: bool = deciding(True, Flag(), "pack several episodes into a row; False: one per row, batched by length")
    in_order: bool = deciding(False, Flag(), "keep the order of the transcripts, as a curriculum; False: shuffle")
    validation_share: float = deciding(0.05, INSIDE, "share of the episodes held out for validation")
    num_epochs: int = value(1, Whole(1, 10**6), "epochs")
    log_every: int = value(50, Whole(1), "updates per row of metrics")
    evaluate_every: int = value(0, Whole(0), "updates between evaluations; 0: before the first epoch and after each")
    save_every_s: float = value(
        300.0, Number(0, MANY_SECONDS, above=True), "flush interval in seconds: the most work that a kill loses"
    )
    keep_checkpoints: int = value(2, Whole(1), "checkpoints to keep besides the best")
    tensorboard: bool = value(True, Flag(), "also write metrics for TensorBoard")
    wandb: str = value("", Text(longest=128), "project of Weights & Biases (pip install wandb); empty: off")


@dataclass(frozen=True)
class OfflineSection(Learning, Running):
    """Values of both sections, train_language and train_values."""


def settings_of(section: OfflineSection, total_steps: int) -> OfflineSettings:
    """The settings of the update: those that the section has, which inherits some of their classes."""
    of = [kind for kind in OfflineSettings.__bases__ if isinstance(section, kind)]
    values = {field.name: getattr(section, field.name) for kind in of for field in fields(kind)}
    return OfflineSettings(**values, total_steps=total_steps)
