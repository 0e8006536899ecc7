"""The extended actions, against a slow twin that is written from the specification and drives an engine of its own."""

import random
import re

import numpy as np
import pytest
from nle import nethack

from motif_jax.envs.nethack import engine
from motif_jax.envs.nethack import game as rules
from motif_jax.envs.nethack.explorer import ExplorerPlayer
from motif_jax.envs.nethack.game import ExtendedGame, NetHackGame
from motif_jax.envs.nethack.observations import FRAME, Observer
from motif_jax.envs.nethack.tasks import TASKS
from motif_jax.envs.nethack.world import GameSettings
from motif_jax.envs.world import GameSeed, SeedStream, game_seed
from motif_jax.structs import EndStatus

SHOWN = ("tty_chars", "tty_colors", "glyphs", "blstats")
CAST, QUAFF, _, PICKUP, _ = range(23, 28)
YES, KICK = 8, 20
CONFIDENT = "feel more confident in your"


def make_game(task="score", **settings) -> ExtendedGame:
    return ExtendedGame(GameSettings(task, **settings), Observer(1, (), extra_frames=FRAME).views(0))


def whisper(number, page, question):
    """Texts that a game rarely says, in place of some that it says: after the key of this number in an episode."""
    rng = random.Random(number)
    if page:
        texts = ("You descend the stairs.", "You kill it!", "You feel more confident in your skills.", "It is great.")
    elif question:
        texts = (
            "Drink from the fountain?", "Really DRINK it?", "Is the newt great?", "Really attack it?", "Pay? [yn]",
            "What do you want to drink? [Zf or ?*]", "What do you want to eat? [$ or ?*]", "Stop eating? [yn]",
            "You feel more confident in your skills.  Pay?", "You feel more confident in your skills.  Stop eating?",
        )  # fmt: skip
    else:
        texts = (
            "You kill the newt!  You kill the jackal!", "It barks.  You feel more confident in your fighting skills.",
            "What do you want to eat? [Z or ?*]", "What do you want to drink? [Za or ?*]", "YOU KILL it!",
            "You descend the stairs.",
        )  # fmt: skip
    return rng.choice(texts) if rng.random() < (0.4 if page or question else 0.05) else ""


class WhisperingEngine:
    def __init__(self, game, say):
        self._engine, self._game, self._say, self._number = game._raw, game, say, 0
        self.keys = []

    def reset(self):
        self._engine.reset()
        self._number = 0

    def step(self, key):
        self._engine.step(key)
        self.keys.append(key)
        self._number += 1
        _, question, _, page = self._game._state["internal"][:4].tolist()
        text = self._say(self._number, bool(page), bool(question))
        if text and not self._engine.done():
            self._game.buffers["message"][:] = np.frombuffer(text.encode().ljust(256, b"\0"), np.uint8)

    def __getattr__(self, name):
        return getattr(self._engine, name)


class Twin:
    """The specification, step by step, on text."""

    def __init__(self, task, *, reference=False, character="mon-hum-neu-mal", say=lambda *asked: ""):
        self.task, self.reference, self.say = TASKS[task], reference, say
        self.engine = nethack.Nethack(
            observation_keys=(*SHOWN, "message", "internal"), playername=f"Agent-{character}", ttyrec=None,
            fix_moon_phase=True,
        )  # fmt: skip

    def reset(self, seed):
        self.engine.set_initial_seeds(seed.core, seed.disp, False)
        observation = self.engine.reset()
        engine.patch(self.engine, birthday=seed.core)
        self.number, self.done = 0, False
        self.look(observation)
        while self.page or not self.engine.in_normal_game():
            self.press(" ")
        self.caption = self.text
        self.kills, self.confident, self.won = 0, False, False
        self.score, self.turns = self.frame["blstats"][[9, 20]].tolist()

    def look(self, observation):
        frame = dict(zip((*SHOWN, "message", "internal"), observation, strict=True))
        self.frame = {name: array.copy() for name, array in frame.items()}
        _, question, line, page = frame["internal"][:4].tolist()
        self.question, self.line, self.page = bool(question), bool(line), bool(page)
        self.text = bytes(frame["message"]).rstrip(b"\0").decode("latin-1")
        self.screen = "\n".join(bytes(row).decode("latin-1") for row in frame["tty_chars"])

    def press(self, key):
        if self.done:
            return
        observation, self.done = self.engine.step(key if isinstance(key, int) else ord(key))
        self.number += 1
        self.look(observation)
        text = "" if self.done else self.say(self.number, self.page, self.question)
        self.text = text or self.text

    def step(self, action):
        before, asked, key = self.caption, self.question, chr(rules.EXTENDED_KEYS[action])
        if self.reference and "you kill " in before.lower():
            self.kills += 1
        choosing = "What do you want to eat" in before or "What do you want to drink" in before
        if choosing:
            offered = before[before.find("[") + 1 :][:1] if "[" in before else ""
            key = offered if key == "y" and re.fullmatch("[A-Za-z]", offered) else " "
        texts = []
        self.press(ord(key))
        if key == "Z":
            menu = "Choose which spell to cast" in self.screen
            if self.reference:
                between = self.text
                self.press("a")
                self.confident |= self.page and CONFIDENT in between
            elif menu and not choosing and not asked:
                self.press("a")
        self.caption, stairs = self.settle(texts, sees=key != "Z")
        self.listen(texts)
        blocked = self.question and not (self.reference and self.declined)
        if self.confident and not blocked and not self.done:
            self.confident, texts = False, texts[-1:]
            self.press(0x80 | ord("e"))
            if self.reference:
                self.press("a")
                self.caption = self.text
            else:
                if "skills:" in self.screen:
                    self.press("a")
                self.caption, _ = self.settle(texts)
                self.caption = stairs or self.caption
            self.listen(texts[1:])
        return self.reward()

    def settle(self, texts, sees=True):
        """Returns the caption, and the page about the stairs that it may be.

        The release looks for skills in what is shown before each key of its own, but not after those of a spell
        (`sees`).
        """
        stairs = last = ""
        self.declined = False
        while self.page or self.line:
            self.confident |= self.reference and sees and CONFIDENT in (stairs or self.text)
            sees = True
            if not self.page:
                self.press("\x1b")
                stairs = "" if self.reference else stairs
                continue
            self.hear(texts)
            stairs = self.text if "You descend the stairs" in self.text else stairs
            last = self.text or last
            self.press(" ")
            if self.done:
                return last, ""
        if self.done:
            return last, ""
        self.confident |= self.reference and sees and CONFIDENT in (stairs or self.text)
        if self.question and not self.left(stairs if stairs and self.reference else self.text):
            self.press("\x1b")
            self.declined = True
            stairs = "" if self.reference else stairs
        self.hear(texts)
        return stairs or self.text, stairs

    def left(self, question):
        if self.reference:
            return any(part in question for part in ("eat", "attack", "direction?", "pray", "drink"))
        words = re.split("[^a-z0-9_]+", question.lower())
        verbs = {verb + ending for verb in ("eat", "attack", "pray", "drink") for ending in ("", "ing")}
        return bool(verbs & set(words)) or "direction?" in question.lower()

    def hear(self, texts):
        if not texts or texts[-1] != self.text:
            texts.append(self.text)

    def listen(self, texts):
        for text in () if self.reference else texts:
            self.confident |= CONFIDENT in text
            self.kills += len(re.findall("you kill ", text, re.IGNORECASE))

    def reward(self):
        if self.done:
            return 0.0
        blstats = self.frame["blstats"]
        score, frozen = self.score, self.turns == blstats[20]
        self.score, self.turns = blstats[[9, 20]].tolist()
        if self.task.is_score:
            return self.score - score - 0.01 * frozen
        if self.task.stairs_level:
            self.won = "You descend the stairs" in self.caption and blstats[24] == self.task.stairs_level
        else:
            x, y = blstats[:2].tolist()
            around = {(x + dx, y + dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)}
            cells = {(int(column), int(row)) for row, column in np.argwhere(self.frame["glyphs"] == rules.ORACLE_GLYPH)}
            self.won = bool(around & cells) and not (self.task.sober and blstats[25] & 512)
        return 50.0 * self.won


def compare(game, twin, seed, actions) -> list[bytes]:
    game.reset(seed)
    twin.reset(seed)
    captions = [game.message]
    assert game.message.decode("latin-1") == twin.caption
    for step, action in enumerate(actions):
        reward = game.step(action)
        assert reward == pytest.approx(twin.step(action)), step
        assert game.message.decode("latin-1") == twin.caption, step
        assert game._kills == twin.kills, step
        assert (game.end == EndStatus.DEATH) == twin.done, step
        captions.append(game.message)
        if twin.done:
            break
        assert (game.end == EndStatus.TASK_SUCCESSFUL) == twin.won == game.success, step
        assert bytes(game.buffers["message"]).rstrip(b"\0").decode("latin-1") == twin.caption
        for name in SHOWN:
            assert np.array_equal(game.buffers[name], twin.frame[name]), (name, step)
        if game.end:
            break
    assert game.info().named(rules.EXTENDED_FIGURES)["kills"] == twin.kills
    return captions


def random_actions(seed, steps):
    """All actions, more often those that ask something, and `y` after them."""
    rng = random.Random(seed)
    for _ in range(steps):
        yield rng.choice((*(rng.randrange(28) for _ in range(6)), CAST, QUAFF, PICKUP, YES))


CHARACTERS = ("mon-hum-neu-mal", "wiz-elf-cha-fem", "bar-orc-cha-mal", "pri-hum-law-fem")


@pytest.mark.differs(
    "oni",
    there="the extended actions have six errors and oddities ([game.py](../../motif_jax/envs/nethack/game.py))",
    here="they are corrected",
    reference="as released",
)
@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("character", CHARACTERS)
def test_random_play_is_that_of_the_twin(character, reference):
    game = make_game(character=character, reference_extended=reference)
    twin = Twin("score", character=character, reference=reference)
    captions = []
    for episode in range(6):
        captions += compare(game, twin, game_seed(3, SeedStream.TRAIN, episode), random_actions(episode, 1500))
    text = b"\n".join(captions)
    assert (b"What do you want to drink" in text) == (character != "bar-orc-cha-mal")
    assert b"Are you sure you want to pray" in text
    assert (b"You don't know any spells" in text) == (character.startswith("bar") and not reference)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("task", ["score", "staircase", "staircase_lvl3", "staircase_lvl4", "oracle", "oracle_sober"])
def test_play_with_rare_texts_is_that_of_the_twin(task, reference):
    game = make_game(task, reference_extended=reference, character="wiz-hum-neu-mal")
    game._raw = WhisperingEngine(game, whisper)
    twin = Twin(task, reference=reference, character="wiz-hum-neu-mal", say=whisper)
    captions = []
    for episode in range(4):
        captions += compare(game, twin, game_seed(4, SeedStream.TRAIN, episode), random_actions(episode, 1000))
    assert len(captions) > 500
    assert b"You descend the stairs." in captions or task == "staircase"


@pytest.mark.parametrize(
    ("reference", "question", "keys"),
    [
        (True, "Pay? [yn]", (rules.ESCAPE, rules.ENHANCE, rules.FIRST)),
        (True, "Really attack it?", ()),
        (False, "Pay? [yn]", (rules.ESCAPE,)),
        (False, "Really attack it?", ()),
    ],
)
@pytest.mark.quick
def test_the_release_enhances_a_skill_in_the_step_that_declines_a_question(reference, question, keys):
    game, text = make_game(reference_extended=reference), f"You feel more confident in your skills.  {question}"
    game._raw = WhisperingEngine(game, lambda number, page, asked: text if asked else "")
    game.reset(GameSeed(12, 34, 0))
    game._raw.keys.clear()
    game.step(KICK)
    assert game._raw.keys == [rules.EXTENDED_KEYS[KICK], *keys]


@pytest.mark.differs(
    "oni",
    there="a text after `a`, the letter of a spell, announces no skill, unless it stays when its page is turned",
    here="it does",
    reference="as released",
)
@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.quick
def test_a_text_after_the_letter_of_a_spell_announces_a_skill(reference):
    game, text = make_game(reference_extended=reference), "You feel more confident in your skills."
    game.reset(GameSeed(12, 34, 0))
    game._raw = WhisperingEngine(game, lambda number, page, asked: text if number == 2 else "")
    game.step(CAST)
    assert game._raw.keys[:2] == [rules.CAST, rules.FIRST]
    assert (rules.ENHANCE in game._raw.keys) != reference


@pytest.mark.quick
def test_the_28_actions_are_those_of_the_specification():
    assert rules.EXTENDED_KEYS[:23] == rules.KEYS
    assert bytes(rules.EXTENDED_KEYS) == b"\rkljhunbyKLJHUNBY<>.\x04es" + b"Zq\xf0,p"
    assert rules.EXTENDED_NAMES[22:] == ("search", "cast", "quaff", "pray", "pickup", "pay")
    assert GameSettings(actions="extended").action_names == rules.EXTENDED_NAMES
    assert GameSettings(actions="extended").make(Observer(1, (), extra_frames=FRAME).views(0)).num_actions == 28


@pytest.mark.differs(
    "oni",
    there="questions about drinking are left to the player in all tasks",
    here="only to players with the extended actions; with Motif's, nothing can be drunk",
)
@pytest.mark.quick
def test_questions_about_drinking_are_left_to_players_with_extended_actions():
    plain, extended = NetHackGame(GameSettings(), Observer(1, (), extra_frames=FRAME).views(0)), make_game()
    for game in (plain, extended):
        game._raw = WhisperingEngine(game, lambda number, page, question: "You drink where?" if question else "")
        game.reset(GameSeed(12, 34, 0))
        game.step(KICK)
        assert game.opened_question == (game is extended)


@pytest.mark.quick
def test_a_step_onto_stairs_has_a_message_as_with_motifs_actions():
    game, player = make_game(stairs_message=True), ExplorerPlayer()
    game.reset(game_seed(0, SeedStream.EVALUATE, 1), 1)
    player.begin(random.Random(0))
    while not game.on_stairs:
        assert game.message != rules.STAIRS_HERE
        game.step(player.choose(game))
    assert game.message == rules.STAIRS_HERE
