"""The table of algorithms: their learnt parts, their targets, and their decoding."""

from __future__ import annotations

from typing import NamedTuple


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
JOINT = "joint"  # NAME+joint clones the policy at the same time, as in the paper's configs


def recipe_of(name: str) -> Recipe:
    """Returns the recipe of NAME or NAME+joint; raises KeyError for an unknown name."""
    if name not in names():
        raise KeyError(name)
    plain, joint, _ = name.partition("+")
    recipe = RECIPES[plain]._replace(name=name)
    return recipe._replace(clones=True, description=f"{recipe.description}, and cloning") if joint else recipe


def names() -> tuple[str, ...]:
    """Returns all valid names of `recipe_of`."""
    joint = [f"{name}+{JOINT}" for name, recipe in RECIPES.items() if recipe.has_trunk and not recipe.clones]
    return (*RECIPES, *joint)
