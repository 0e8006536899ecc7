"""motif_jax: game-playing agents trained with language models (Motif, ONI, GLAM, ILQL), in JAX.

    from motif_jax import load_language, load_policy, load_reward, load_values

    reward = load_reward("runs/quickstart")
    reward(["You kill the newt!"]).normalised     # the agent's reward for this message
    policy = load_policy("runs/quickstart")       # policy.begin(), then policy(observation).action
    language = load_language("flan-t5-small")     # a directory with a language model
    language.score(["Goal: go to the red ball"], ["turn left", "go forward"])   # log-probabilities of these choices
    values = load_values("runs/chats")            # of --stage=train_values
    values.reply("My parcel has not arrived.", beta=4, max_tokens=60)   # or a list of texts, or messages

Plugins add names of their own. Importing this package loads nothing heavy; in particular it never loads jax, so that
actor workers can import it.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motif_jax.api import load_language, load_policy, load_reward, load_values

__version__ = "0.2.0"
__all__ = ["__version__", "load_language", "load_policy", "load_reward", "load_values"]


def __getattr__(name: str) -> Any:
    """Imports a public name, such as `load_reward`, when it is first used."""
    if name in __all__:
        from motif_jax import api

        return getattr(api, name)
    if not (name.startswith("_") or find_spec(f"{__name__}.{name}")):  # a module of the package may be half imported
        from motif_jax.names import API, find

        if (found := find(API, name)) is not None:
            return found
    raise AttributeError(f"module 'motif_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the public names, too, although they are only imported when they are used."""
    from motif_jax.names import API

    return sorted({*globals(), *__all__, *API})
