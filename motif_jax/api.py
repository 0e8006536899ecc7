"""The public names of the package, for notebooks and scripts. Nothing inside the package imports this file."""

from motif_jax.language.loaded import Language, load_language
from motif_jax.policies.model import Act, Policy, load_policy
from motif_jax.policies.writing import TextValues, load_values
from motif_jax.rewards.learnt_source import Liked, Reward, Values, load_reward

__all__ = [
    "Act", "Language", "Liked", "Policy", "Reward", "TextValues", "Values", "load_language",
    "load_policy", "load_reward", "load_values",
]  # fmt: skip
