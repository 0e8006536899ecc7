"""The table of algorithms: their learnt parts, their targets, and their decoding."""

from __future__ import annotations

from typing import NamedTuple


class Recipe(NamedTuple):
    """One algorithm."""

    about: str
    policy: str = ""  # "clone", "advantage" (cloning weighted by advantage), "group" (see `plays`); "": it is given
    values: str = ""  # values per "token", "utterance", or "reply" (on a given model's features); "": without values
    q_target: str = ""  # value of the next state: "value" V, "max" of Q, "soft" maximum with the policy, "replies"
    v_target: str = "q"  # or "returns": discounted sums of the recorded rewards
    expectile: float = 0.0  # of V; 0: from the config
    conservative: bool = False  # with the loss that lowers Q of other actions
    conditioned: bool = False  # the policy is conditioned on the episode's return
    selective: bool = False  # only the best episodes are used
    moments: bool = False  # a text is also compared with others in the same moment of a group
    decoding: str = "policy"  # "shift": logits + beta (Q - V) per token; "rerank": the best of several texts
    name: str = ""  # as `recipe_of` was given it

    @property
    def plays(self) -> bool:
        """Whether the policy learns from groups of games that it plays, rather than from transcripts."""
        return self.policy == "group"


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
    "grpo": Recipe("games of the policy, better or worse than others that began alike", policy="group"),
    "gigpo": Recipe("the same, and texts better or worse than others in the same moment", policy="group",
                    moments=True),
    "chai": Recipe("values of whole replies, over a given model", values="reply", q_target="replies",
                   conservative=True, decoding="rerank"),
}  # fmt: skip
JOINT = "joint"  # NAME+joint clones the policy at the same time, as in the paper's configs


def recipe_of(name: str) -> Recipe:
    """Returns the recipe of NAME or NAME+joint; raises KeyError for an unknown name."""
    plain, plus, more = name.partition("+")
    recipe = RECIPES[plain]._replace(name=name)
    if recipe.v_target == "returns" and recipe.values != "token":
        raise ValueError(f"recipe {name!r}: returns are per token, so v_target='returns' needs values='token'")
    if not plus:
        return recipe
    if more != JOINT or recipe.policy or recipe.values == "reply":
        raise KeyError(name)
    return recipe._replace(policy="clone", about=f"{recipe.about}, and cloning")


def names() -> tuple[str, ...]:
    """Returns all valid names of `recipe_of`."""
    joint = [f"{name}+{JOINT}" for name, one in RECIPES.items() if not one.policy and one.values != "reply"]
    return (*RECIPES, *joint)
