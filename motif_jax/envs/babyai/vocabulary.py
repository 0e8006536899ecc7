"""All words of prompts: the vocabulary of a language model that is trained from scratch."""

from __future__ import annotations

from motif_jax.envs.babyai.missions import ADJECTIVES, MASCULINE, NOUNS, PLACES
from motif_jax.envs.babyai.words import ACTION_SETS, LANGUAGES, REWORDINGS

NUMBERS = 64  # for steps and observations in a prompt
MISSIONS = (
    "go to the a an object, then pick up and open, after you put next to .",
    "aller à être allé attraper avoir attrapé ouvrir ouvert poser à côté de d'une d'un l'objet un la le, puis et après",
)


def all_words() -> tuple[str, ...]:
    """Returns texts with the words of all languages, sets of actions and rewordings, and numbers."""
    texts = list(MISSIONS)
    for language in LANGUAGES.values():
        for part in language:
            texts += [part] if isinstance(part, str) else list(part.values() if hasattr(part, "values") else part)
    texts = [text.replace("{", " ").replace("}", " ") for text in texts]
    for names in ACTION_SETS.values():
        texts += names
    for words in (*REWORDINGS.values(), NOUNS, ADJECTIVES, MASCULINE, PLACES):
        texts += [*words, *words.values()]
    return (*texts, *map(str, range(NUMBERS)))
