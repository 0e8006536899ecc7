"""The stage train_language: trains a language model on transcripts, to say what the agent says in them.

Next-token training on the agent's tokens: behavioural cloning of a scripted player, of a trained agent, or of people.
The result lies in `language/model`, as the Hugging Face Hub has it: `motif_jax.load_language` and transformers read it.
This module is quick to import; cloning.py trains.
"""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.config.table import MANY_SECONDS, PATH, PATHS, Flag, Number, Tables, Text, Value, Whole, check_values
from motif_jax.envs.babyai.manual import find_manual, read_manual
from motif_jax.envs.settings import TABLE as ENV
from motif_jax.language.settings import FOLDER, check_model, model_folder
from motif_jax.offline.settings import OPTIMIZER, check_num_parts
from motif_jax.stages import EXPERIMENT, Stage, is_distributed, with_result
from motif_jax.stages.train_language.data import TWEETS, check_template, wordle_of
from motif_jax.structs import UserError
from motif_jax.system.files import read_json
from motif_jax.system.meeting import find_meeting

IMPORTS = ("lmrl", "lmrl_wordle", "tweets", "visdial", "reddit", "manual")
TABLES: Tables = {
    "transcripts": {
        "path": Value(PATH, decides=True, older=""),
        "import_from": Value(PATHS, decides=True, older=""),
        "import_format": Value(Text(IMPORTS), decides=True, older="lmrl"),
        "template": Value(Text(("words", "marks", "lines", "none")), decides=True, older="words"),
    },
    "language": {
        "model": Value(PATH, decides=True, older=""),
        "tokeniser": Value(Text(("words", "letters")), decides=True, older="words"),
        "family": Value(Text(("gpt2", "llama")), decides=True, older="gpt2"),
        "width": Value(Whole(2, 2**14), decides=True, older=96),
        "layers": Value(Whole(1, 200), decides=True, older=2),
        "heads": Value(Whole(1, 256), decides=True, older=4),
        "dtype": Value(Text(("float32", "bfloat16")), decides=True, older="float32"),
    },
    "train_language": {
        "recipe": Value(Text(("bc", "filtered_bc")), decides=True, older="bc"),
        "best_share": Value(Number(0, 1, above=True), decides=True, older=0.2),
        "batch_size": Value(Whole(1, 2**20), decides=True, older=64),
        "num_parts": Value(Whole(1, 2**10), older=1),
        "chunk": Value(Whole(0), older=0),
        "max_length": Value(Whole(2, 2**20), decides=True, older=256),
        "packed": Value(Flag(), decides=True, older=True),
        "validation_share": Value(Number(0, 1, above=True, below=True), decides=True, older=0.05),
        "mean_over_all_tokens": Value(Flag(), decides=True, older=False),
        **OPTIMIZER,
        "num_epochs": Value(Whole(1, 10**6), older=1),
        "log_every": Value(Whole(1), older=50),
        "evaluate_every": Value(Whole(0), older=0),
        "save_every_s": Value(Number(0, MANY_SECONDS, above=True), older=300.0),
        "keep_checkpoints": Value(Whole(1), older=2),
    },
}
READS: Tables = EXPERIMENT | {"env": ENV} | TABLES


def artefacts(workdir: Path) -> list[Path]:
    """The directory of the language model."""
    return with_result(workdir / FOLDER, "summary.json")


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Whether the model was trained for as many epochs as the config asks, and is there."""
    try:
        done = read_json(workdir / FOLDER / "summary.json")
        epoch = int(done["epoch"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return epoch >= config.train_language.num_epochs and (model_folder(workdir) / "config.json").is_file()


def check(config: ConfigDict) -> None:
    """Raises UserError for values that cannot work."""
    check_values(config, READS)
    section, language = config.train_language, config.language
    check_num_parts(section, "train_language")
    check_model(language.model, language.width, language.heads, "--config.language")
    if not language.model and language.tokeniser == "letters" and config.transcripts.template != "marks":
        raise UserError(
            "a tokeniser of letters has the marks that the template 'marks' sets between texts, and not those of "
            f"{config.transcripts.template!r} (--config.language.tokeniser, --config.transcripts.template)"
        )
    check_template(language, config.transcripts.template, "--config.language.model")
    if config.transcripts.path and config.transcripts.import_from:
        raise UserError(
            "transcripts are either read from a directory or imported (--config.transcripts.path, .import_from)"
        )
    if config.transcripts.import_format == "manual":
        for name in filter(None, config.transcripts.import_from.split(",")):
            read_manual(find_manual(name))
    if config.transcripts.import_format == TWEETS and config.transcripts.import_from:
        wordle_of(config.env)
    find_meeting(config.distributed)  # which checks it


def run(config: ConfigDict, workdir: Path) -> None:
    """Trains the model and writes `workdir/language`."""
    from motif_jax.stages.train_language.cloning import train

    train(config, workdir, workdir / FOLDER)


STAGE = Stage(
    tables=TABLES,
    reads=READS,
    identity=("", "transcripts", "language", "train_language"),
    check=check,
    is_complete=is_complete,
    run=run,
    makes=("language",),
    writes="--config.train_language.keep_checkpoints",
    memory="--config.train_language.batch_size, .max_length",
    device_memory="--config.train_language.num_parts, .chunk, .max_length, .batch_size",
    artefacts=artefacts,
    shared=is_distributed,
)
