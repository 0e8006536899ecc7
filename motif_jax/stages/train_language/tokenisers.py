"""Which templates the tokeniser of a model can have: refused here, before transcripts are made and models trained."""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.structs import UserError
from motif_jax.tokens import FILE, BuiltInTokeniser, LetterTokeniser, Tokeniser, WordTokeniser, read_tokeniser
from motif_jax.transcripts.live import LiveRenderer
from motif_jax.transcripts.render import FLAG, TEMPLATES

BUILT_IN: dict[str, type[BuiltInTokeniser]] = {"words": WordTokeniser, "letters": LetterTokeniser}


def check_template(language: ConfigDict, template: str, flag: str, directory: str = "", writes: bool = False) -> None:
    """Raises UserError if the model's tokeniser cannot have a template.

    Args:
      language: the config's section.
      template: a name of `TEMPLATES`.
      flag: the value of the config that names a model, for messages.
      directory: of another model than that of the section.
      writes: whether the model shall write: then its texts must end with one token.
    """
    model = directory or language.model
    if not model:
        tokeniser: Tokeniser = BUILT_IN[language.tokeniser].from_texts(())
    elif (Path(model) / FILE).is_file():
        try:
            tokeniser = read_tokeniser(Path(model) / FILE)
        except UserError as error:
            raise UserError(f"{error} ({flag})") from error
    else:
        return  # whoever reads the model says what is missing
    check_words(tokeniser, template)
    if writes:
        LiveRenderer(tokeniser, TEMPLATES[template])


def check_words(tokeniser: Tokeniser, template: str) -> None:
    """Raises UserError for the template of words, if tokens are something else."""
    if template == "words" and not isinstance(tokeniser, WordTokeniser):
        raise UserError(
            "the template 'words' is for tokenisers whose tokens are words, and this model has another: choose marks, "
            f"lines or none ({FLAG})"
        )
