"""The numbers that an algorithm leaves open: as a table of config values, and as an argument of the update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from motif_jax.config.table import Flag, Number, Table, Value, Whole
from motif_jax.offline.recipes import Recipe
from motif_jax.structs import UserError

OPTIMIZER: Table = {
    "learning_rate": Value(Number(0, above=True), decides=True, older=1e-3),
    "learning_rate_end": Value(Number(0, 1), decides=True, older=0.1),  # share of it at the end (cosine)
    "warmup_steps": Value(Whole(0), decides=True, older=50),
    "weight_decay": Value(Number(0), decides=True, older=0.0),
    "adam_b1": Value(Number(0, 1, below=True), decides=True, older=0.9),
    "adam_b2": Value(Number(0, 1, below=True), decides=True, older=0.999),
    "adam_eps": Value(Number(0, above=True), decides=True, older=1e-8),
    "max_gradient_norm": Value(Number(0, infinite=True), decides=True, older=1.0),  # 0: gradients are not clipped
}
VALUES: Table = {
    "discount": Value(Number(0, 1), decides=True, older=0.99),
    "expectile": Value(Number(0, 1, above=True, below=True), decides=True, older=0.7),
    "double_q": Value(Flag(), decides=True, older=True),
    "polyak": Value(Number(0, 1, above=True), decides=True, older=0.005),
    "hard_update_every": Value(Whole(0), decides=True, older=0),
    "v_weight": Value(Number(0), decides=True, older=1.0),
    "q_weight": Value(Number(0), decides=True, older=1.0),
    "conservative_weight": Value(Number(0), decides=True, older=0.01),
    "conservative_temperature": Value(Number(0, above=True), decides=True, older=1.0),
    "margin_weight": Value(Number(0), decides=True, older=0.0),
    "margin": Value(Number(0), decides=True, older=0.0),
    "policy_weight": Value(Number(0), decides=True, older=1.0),
    "advantage_beta": Value(Number(0), decides=True, older=4.0),
    "advantage_weight": Value(Number(0, above=True, infinite=True), decides=True, older=20.0),  # at most
    "advantage_sign": Value(Flag(), decides=True, older=False),
    "value_min": Value(Number(infinite=True), decides=True, older=float("-inf")),
    "value_max": Value(Number(infinite=True), decides=True, older=float("inf")),
    "reward_scale": Value(Number(0, above=True), decides=True, older=1.0),
    "mean_over_all_tokens": Value(Flag(), decides=True, older=False),
}

Used = Callable[[Recipe, Mapping[str, Any]], bool]  # (recipe, the section train_values) -> whether a value has a use
_values: Used = lambda recipe, _: bool(recipe.values)  # noqa: E731
_trunk: Used = lambda recipe, _: recipe.values in ("token", "utterance")  # noqa: E731
_token: Used = lambda recipe, _: recipe.values == "token"  # noqa: E731
_policy: Used = lambda recipe, _: bool(recipe.policy)  # noqa: E731
_weighted: Used = lambda recipe, _: recipe.policy == "advantage"  # noqa: E731
USED_BY: dict[str, Used] = {  # when each value has an effect; others always have one
    "discount": _values,
    "expectile": lambda recipe, section: _trunk(recipe, section) and not recipe.expectile,
    "double_q": _values,
    "polyak": lambda recipe, section: _values(recipe, section) and not section["hard_update_every"],
    "hard_update_every": _values,
    "v_weight": _trunk,
    "q_weight": _values,
    "conservative_weight": lambda recipe, _: recipe.conservative,
    "conservative_temperature": lambda recipe, section: recipe.conservative and _token(recipe, section),
    "margin_weight": _token,
    "margin": lambda recipe, section: _token(recipe, section) and section["margin_weight"] > 0,
    "policy_weight": _policy,
    "advantage_beta": _weighted,
    "advantage_weight": lambda recipe, section: _weighted(recipe, section) and not section["advantage_sign"],
    "advantage_sign": _weighted,
    "value_min": _trunk,
    "value_max": _trunk,
    "reward_scale": lambda recipe, _: bool(recipe.values) or recipe.conditioned,
    "mean_over_all_tokens": _policy,
    "best_share": lambda recipe, _: recipe.selective,
    "replies": lambda recipe, _: recipe.values == "reply",
    "games_beta": lambda recipe, section: section["games"] > 0 and recipe.decoding == "shift",
}


def unused_values(recipe: Recipe, section: Mapping[str, Any]) -> list[str]:
    """The values of the section `train_values` that make no difference to what a recipe learns."""
    return [name for name, used in USED_BY.items() if not used(recipe, section)]


class Settings(NamedTuple):
    """What the update needs beside a recipe; the fields of both tables, in their order, and what the job gives."""

    learning_rate: float = 1e-3
    learning_rate_end: float = 0.1
    warmup_steps: int = 50
    weight_decay: float = 0.0
    adam_b1: float = 0.9
    adam_b2: float = 0.999
    adam_eps: float = 1e-8
    max_gradient_norm: float = 1.0
    discount: float = 0.99
    expectile: float = 0.7
    double_q: bool = True
    polyak: float = 0.005  # how far targets go to the values at every step
    hard_update_every: int = 0  # steps after which targets become the values instead; 0: never
    v_weight: float = 1.0
    q_weight: float = 1.0
    conservative_weight: float = 0.01
    conservative_temperature: float = 1.0
    margin_weight: float = 0.0
    margin: float = 0.0
    policy_weight: float = 1.0
    advantage_beta: float = 4.0
    advantage_weight: float = 20.0  # the largest that an advantage gives
    advantage_sign: bool = False  # only the sign of the advantage counts
    value_min: float = float("-inf")  # of the target's Q
    value_max: float = float("inf")
    reward_scale: float = 1.0  # rewards are divided by it
    mean_over_all_tokens: bool = False  # the policy's loss is a mean over all tokens, not over those that it learns
    total_steps: int = 0  # of the optimizer, over which the learning rate falls; 0: it stays
    num_parts: int = 1  # a batch's rows are computed in so many parts, one after another
    chunk: int = 0  # positions whose logits, or Q of all tokens, are in memory at a time; 0: all


def check_num_parts(section: Mapping[str, Any], stage: str) -> None:
    """Raises UserError if the rows of a batch cannot be cut into `num_parts`; `stage` is the section's name."""
    if section["batch_size"] % section["num_parts"]:
        raise UserError(
            f"batch_size {section['batch_size']} cannot be cut into {section['num_parts']} parts "
            f"(--config.{stage}.batch_size, .num_parts)"
        )
