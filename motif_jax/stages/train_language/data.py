"""The transcripts that a language model learns from: which episodes, their tokens, and whether the template fits.

Games that people have tweeted become episodes of the world Wordle: words are drawn that show the colours of the tweets.
As in the code of ILQL, a tweet whose colours no words show is replaced by another, so that there are as many games as
tweets. Each is played by the rules of the world, with one word that can be hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.console import print_line
from motif_jax.envs.babyai.manual import find_manual, make_examples, read_manual
from motif_jax.envs.babyai.vocabulary import all_words
from motif_jax.envs.seeding import SeedStream, game_seed
from motif_jax.envs.settings import check_world, essential
from motif_jax.envs.wordle.vocabulary import Vocabulary
from motif_jax.envs.wordle.world import WordleWorld
from motif_jax.structs import EndStatus, Episode, UserError
from motif_jax.tokens import (
    FILE,
    UNKNOWN_TOKEN,
    BuiltInTokeniser,
    LetterTokeniser,
    Tokeniser,
    WordTokeniser,
    read_tokeniser,
)
from motif_jax.transcripts.imports import FLAG, import_episodes, read_lmrl, read_reddit, read_visdial
from motif_jax.transcripts.live import LiveRenderer
from motif_jax.transcripts.lmrl_wordle import read_lmrl_wordle
from motif_jax.transcripts.moments import are_moments, moment, vocabulary
from motif_jax.transcripts.render import FLAG as TEMPLATE_FLAG
from motif_jax.transcripts.render import TEMPLATES, Renderer
from motif_jax.transcripts.store import Transcripts
from motif_jax.transcripts.tweets import read_tweets, retrofit

MANUAL = "manual"  # a format of what is imported


def open_transcripts(config: ConfigDict, workdir: Path, may_import: bool) -> Transcripts:
    """The transcripts that the config names: imported into the workdir if that is asked for, and not done yet.

    Args:
      config: of the experiment.
      workdir: where they lie if the config names no other place.
      may_import: whether this process imports them; another host of the run may.
    """
    section = config.transcripts
    path = Path(section.path) if section.path else workdir / "transcripts"
    if section.import_from and may_import:
        names = section.import_from.split(",")
        provenance: dict[str, Any] = {"format": section.import_format}
        if section.import_format == MANUAL:
            files, window = [find_manual(name) for name in names], config.env.babyai.window
            provenance["window"] = window
            episodes = manual_episodes(files, window)
        else:
            files = [Path(name).expanduser() for name in names]
            if section.import_format == TWEETS:
                provenance |= {"env": essential(config.env.to_dict()), "seed": config.seed}  # decide the words
                episodes = tweeted_games(files, wordle_of(config.env), config.seed)
            else:
                episodes = _episodes(files, section.import_format)
        provenance["files"] = [file.name for file in files]
        if path.exists():
            found = Transcripts(path)
            if found.record["provenance"] != provenance:
                raise UserError(f"{str(path)!r} has other transcripts: choose another --workdir ({FLAG})")
            return found
        found = import_episodes(episodes, path, provenance)
        print_line(f"transcripts: imported {len(found):,} episodes with {found.num_texts:,} texts to {str(path)!r}")
        return found
    return Transcripts(path)


def _episodes(files: list[Path], kind: str) -> Iterator[Episode]:
    if kind == "reddit":
        yield from read_reddit(files)
        return
    if kind == "visdial":
        if len(files) > 2:
            raise UserError(f"visual dialogues are one file, and one of ranks, not {len(files)} ({FLAG})")
        yield from read_visdial(*files)
        return
    read = {"lmrl": read_lmrl, "lmrl_wordle": read_lmrl_wordle}[kind]
    for file in files:
        yield from read(file)


def manual_episodes(files: list[Path], window: int) -> Iterator[Episode]:
    """What manuals of BabyAI-Text say: prompts, and the action that is right then. All words of the world come first,
    those of rewordings too.
    """
    yield from vocabulary(all_words())
    lessons = [lesson for file in files for lesson in read_manual(file)]
    for example in make_examples(lessons, window):
        yield moment(example.prompt, example.action)


def make_tokeniser(kind: str, transcripts: Transcripts) -> BuiltInTokeniser:
    """The tokeniser of a model that learns from these transcripts alone: of "words" or "letters"."""
    return BUILT_IN[kind].from_texts(transcripts.texts())


def make_renderer(transcripts: Transcripts, tokeniser: Any, template: str) -> Renderer:
    """Tokens of the transcripts; raises UserError if they cannot have the template."""
    made = transcripts.record["provenance"]
    if template != "none" and (are_moments(transcripts) or made.get("format") == MANUAL):
        raise UserError(
            f"a policy that plays reads the name of an action right behind the prompt, and the template {template!r} "
            f"sets a mark between them: choose none ({TEMPLATE_FLAG}), in another --workdir if training has begun in "
            "this one"
        )
    check_words(tokeniser, template)
    return Renderer(transcripts.turns(), tokeniser, TEMPLATES[template])


def check_known(transcripts: Transcripts, tokeniser: Any, flag: str) -> None:
    """Raises UserError if a text has something that a tokeniser made for other transcripts does not know."""
    if not isinstance(tokeniser, BuiltInTokeniser):
        return  # tokenisers of bytes know everything
    for text in transcripts.texts():
        if UNKNOWN_TOKEN in tokeniser.encode(text):
            raise UserError(
                f"the policy's tokeniser was made for other transcripts: it does not know all of {text[:60]!r} in "
                f"{str(transcripts.path)!r} ({flag}, --config.transcripts.path)"
            )


def describe_early_ends(renderer: Renderer, stop: int) -> str:
    """How many texts of the agent would end early, by the token `stop` within them, if they were written; "" if none.

    In lines, these are texts of several lines.
    """
    early = renderer.agent_texts_with(stop)
    if not early:
        return ""
    return (
        f"{early:,} of {int(renderer.num_said.sum()):,} texts of the agent have their end mark in them, and what is "
        "written ends there"
    )


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
            f"lines or none ({TEMPLATE_FLAG})"
        )


TWEETS = "tweets"  # a format of what is imported


def wordle_of(env: Mapping[str, Any]) -> WordleWorld:
    """The world of the config, whose words are drawn for tweets; raises UserError if it is not Wordle."""
    world = check_world(env)
    if not isinstance(world, WordleWorld):
        raise UserError(
            f"words are drawn for tweets from the list of the world Wordle, and the world is {world.name!r}: set "
            "--config.env.world=wordle, and its list with --config.env.options (--config.transcripts.import_format)"
        )
    return world


def tweeted_games(files: list[Path], world: WordleWorld, seed: int) -> Iterator[Episode]:
    """As many games as the files have tweets that show one. Their `info` has the number of the puzzle.

    Args:
      files: CSV files, as `read_tweets` reads them.
      world: has the words and the rules.
      seed: of the words.
    """
    tweets = [tweet for file in files for tweet in read_tweets(file)]
    if not tweets:
        raise UserError(f"no tweet in {', '.join(repr(str(file)) for file in files)} shows a game ({FLAG})")
    words, rng = world.vocabulary, np.random.default_rng((seed, 2))
    for number, (tweet, drawn) in enumerate(retrofit(tweets, words.colours_if, len(words.words), rng, len(tweets))):
        game = world.game_with(Vocabulary((words.words[drawn.hidden],)))
        game.begin(game_seed(seed, SeedStream.COLLECT, number), number)
        for guess in drawn.guesses:
            if game.end == EndStatus.RUNNING:  # --config.env.max_episode_steps may end it
                game.say(words.words[guess])
        yield game.record(puzzle=tweet.puzzle)
