"""The algorithms, each a line of one table: what is learnt, from which targets, and how text is then generated."""

from __future__ import annotations

from typing import NamedTuple


class Recipe(NamedTuple):
    """One algorithm."""

    about: str
    policy: str = ""  # how the policy is learnt: "clone", "advantage" (clone, weighted by advantage); "": it is given
    values: str = ""  # of what values are learnt: "token", "utterance", "reply" (of a given model's features); "": none
    q_target: str = ""  # what follows a decision: "value" V, "max" of Q, "soft" maximum of Q and the policy, "replies"
    v_target: str = "q"  # or "returns": discounted sums of the recorded rewards
    expectile: float = 0.0  # of V; 0: the config's
    conservative: bool = False  # with the loss that keeps Q of other actions down
    conditioned: bool = False  # the policy is told the return of the episode
    selective: bool = False  # only the best of the episodes are learnt from
    decoding: str = "policy"  # "policy": as it is; "shift": by beta (Q - V) per token; "rerank": the best of some


RECIPES = {
    "bc": Recipe("behavioural cloning", policy="clone"),
    "filtered_bc": Recipe("behavioural cloning of the best episodes", policy="clone", selective=True),
    "ilql": Recipe("implicit language Q-learning, per token", values="token", q_target="value", conservative=True,
                   decoding="shift"),
    "utterance_ilql": Recipe("implicit language Q-learning, per utterance", values="utterance", q_target="value",
                             decoding="rerank"),
    "single_step": Recipe("values of the policy that was recorded (SARSA)", values="token", q_target="value",
                          expectile=0.5, conservative=True, decoding="shift"),
    "cql": Recipe("conservative Q-learning", values="token", q_target="max", expectile=0.5, conservative=True,
                  decoding="shift"),
    "psi": Recipe("psi-learning: Q-learning close to the policy", values="token", q_target="soft", expectile=0.5,
                  decoding="shift"),
    "awac": Recipe("cloning weighted by advantage", policy="advantage", values="token", q_target="value",
                   conservative=True),
    "utterance_awac": Recipe("cloning weighted by the advantage of the whole utterance", policy="advantage",
                             values="utterance", q_target="value"),
    "monte_carlo": Recipe("V from recorded returns", values="token", q_target="value", v_target="returns",
                          conservative=True, decoding="shift"),
    "decision_transformer": Recipe("cloning, told the return", policy="clone", conditioned=True),
    "chai": Recipe("values of whole replies, over a given model", values="reply", q_target="replies",
                   conservative=True, decoding="rerank"),
}  # fmt: skip
JOINT = "joint"  # after a recipe's name and "+": the policy is cloned at the same time, as the paper's configs do


def recipe_of(name: str) -> Recipe:
    """The recipe of a name, or of a name and "+joint"; raises KeyError if there is none."""
    plain, plus, more = name.partition("+")
    recipe = RECIPES[plain]
    if not plus:
        return recipe
    if more != JOINT or recipe.policy or recipe.values == "reply":
        raise KeyError(name)
    return recipe._replace(policy="clone", about=f"{recipe.about}, and cloning")


def names() -> tuple[str, ...]:
    """All names that `recipe_of` takes."""
    joint = [f"{name}+{JOINT}" for name, one in RECIPES.items() if not one.policy and one.values != "reply"]
    return (*RECIPES, *joint)
