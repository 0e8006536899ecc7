"""Values of the config that say which language model is meant, and where a workdir has its own. Without JAX."""

from __future__ import annotations

from pathlib import Path

from motif_jax.structs import UserError

FOLDER = "language"  # of a workdir: what the stage train_language writes
MODEL = "model"  # in this folder: the language model


def model_folder(workdir: Path) -> Path:
    """The directory in which train_language leaves its language model."""
    return workdir / FOLDER / MODEL


def find_trained(workdir: Path, flag: str) -> Path:
    """The language model of train_language; raises UserError, which names `flag`, if there is none yet."""
    directory = model_folder(workdir)
    if not directory.is_dir():
        raise UserError(f"there is no {str(directory)!r} yet: run --stage=train_language first ({flag})")
    return directory


def check_model(directory: str, width: int, heads: int, flag: str) -> None:
    """Raises UserError if a language model can neither be read nor made.

    Args:
      directory: of a model in the Hugging Face layout, which is only looked for; "" for a new model.
      width: of a new model.
      heads: of a new model.
      flag: the section of the config that has these three values.
    """
    if directory and not Path(directory).is_dir():
        raise UserError(f"there is no directory {directory!r}; language models are not downloaded ({flag}.model)")
    if not directory and width % (2 * heads):
        raise UserError(
            f"width must be a multiple of {2 * heads}, twice the number of heads, not {width} ({flag}.width, .heads)"
        )
