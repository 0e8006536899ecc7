"""Finds and checks the language model that a config names. Loads no JAX."""

from __future__ import annotations

from pathlib import Path

from motif_jax.structs import UserError

FOLDER = "language"  # directory of the stage train_language, in a workdir
MODEL = "model"  # directory of the language model, in FOLDER


def model_folder(workdir: Path) -> Path:
    """The directory where train_language writes its language model."""
    return workdir / FOLDER / MODEL


def find_trained(workdir: Path, flag: str) -> Path:
    """The directory of train_language's model; raises UserError, which names `flag`, if it does not exist."""
    directory = model_folder(workdir)
    if not directory.is_dir():
        raise UserError(f"there is no {str(directory)!r} yet: run --stage=train_language first ({flag})")
    return directory


def check_model(directory: str, width: int, heads: int, flag: str) -> None:
    """Raises UserError if a language model can neither be read nor made.

    Args:
      directory: in the Hugging Face layout; only its existence is checked. "" for a new model.
      width, heads: sizes of a new model.
      flag: the section of the config with these three values.
    """
    if directory and not Path(directory).is_dir():
        raise UserError(f"there is no directory {directory!r}; language models are not downloaded ({flag}.model)")
    if not directory and width % (2 * heads):
        raise UserError(
            f"width must be a multiple of {2 * heads}, twice the number of heads, not {width} ({flag}.width, .heads)"
        )
