"""The extended actions, against a slow twin that is written from the specification and drives an engine of its own."""

import random
import re

import numpy as np
import pytest
from nle import nethack

from motif_jax.actors.players import make_scripted
from motif_jax.envs.nethack import engine
from motif_jax.envs.nethack.extended import ExtendedGame
from motif_jax.envs.nethack.figures import EXTENDED_FIGURES, FIGURES
from motif_jax.envs.nethack.game import ORACLE_GLYPH, NetHackGame
from motif_jax.envs.nethack.game_settings import GameSettings
from motif_jax.envs.nethack.keys import AT_PAGE, EXTENDED_KEYS, EXTENDED_NAMES, KEYS
from motif_jax.envs.nethack.observations import FRAME, Frames
from motif_jax.envs.nethack.tasks import TASKS
from motif_jax.envs.seeding import GameSeed, SeedStream, game_seed
from motif_jax.envs.world import CAPTIONS, step_specs
from motif_jax.envs.worlds import make_world
from motif_jax.structs import EndStatus, UserError

SHOWN = ("tty_chars", "tty_colors", "glyphs", "blstats")
CAST, QUAFF, PRAY, PICKUP, PAY = range(23, 28)
YES, WAIT, KICK = 8, 19, 20


def make_game(task="score", **settings) -> ExtendedGame:
    return ExtendedGame(TASKS[task], Frames(1, FRAME).views(0), **settings)


def say_nothing(number, page, question):
    return ""


def whisper(number, page, question):
    """Texts that a game rarely says, in place of some that it says: after the key of this number in an episode."""
    rng = random.Random(number)
    if page:
        texts = ("You descend the stairs.", "You kill it!", "You feel more confident in your skills.", "It is great.")
    elif question:
        texts = (
            "Drink from the fountain?", "Really DRINK it?", "Is the newt great?", "Really attack it?", "Pay? [yn]",
            "What do you want to drink? [Zf or ?*]", "What do you want to eat? [$ or ?*]", "Stop eating? [yn]",
        )  # fmt: skip
    else:
        texts = (
            "You kill the newt!  You kill the jackal!", "It barks.  You feel more confident in your fighting skills.",
            "What do you want to eat? [Z or ?*]", "What do you want to drink? [Za or ?*]", "YOU KILL it!",
            "You descend the stairs.",
        )  # fmt: skip
    return rng.choice(texts) if rng.random() < (0.4 if page or question else 0.05) else ""


class WhisperingEngine:
    """Stands before a game's engine."""

    def __init__(self, game, say):
        self._engine, self._game, self._say, self._number = game._raw, game, say, 0

    def reset(self):
        self._engine.reset()
        self._number = 0

    def step(self, key):
        self._engine.step(key)
        self._number += 1
        _, question, _, page = self._game._state["internal"][:4].tolist()
        text = self._say(self._number, bool(page), bool(question))
        if text and not self._engine.done():
            self._game.buffers["message"][:] = np.frombuffer(text.encode().ljust(256, b"\0"), np.uint8)

    def __getattr__(self, name):
        return getattr(self._engine, name)


class Twin:
    """The specification, step by step, on text."""

    def __init__(self, task, *, reference=False, character="mon-hum-neu-mal", say=say_nothing):
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
        """Returns the reward."""
        before, asked, key = self.caption, self.question, chr(EXTENDED_KEYS[action])
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
                self.confident |= self.page and "feel more confident in your" in between
            elif menu and not choosing and not asked:
                self.press("a")
        self.caption, stairs = self.settle(texts)
        self.listen(texts)
        if self.confident and not self.question and not self.done and not (self.reference and self.declined):
            self.confident, texts = False, texts[-1:]
            self.press(0x80 | ord("e"))
            if self.reference:
                self.press("a")
                self.hear(texts)
                self.caption = self.text
            else:
                if "skills:" in self.screen:
                    self.press("a")
                self.caption, _ = self.settle(texts)
                self.caption = stairs or self.caption
            self.listen(texts[1:])
        return self.reward()

    def settle(self, texts):
        """Returns the caption, and the page about the stairs that it may be."""
        stairs = last = ""
        self.declined = False
        while self.page or self.line:
            if self.line:
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
        for text in texts:
            self.confident |= "feel more confident in your" in text
            self.kills += 0 if self.reference else len(re.findall("you kill ", text, re.IGNORECASE))

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
            cells = {(int(column), int(row)) for row, column in np.argwhere(self.frame["glyphs"] == ORACLE_GLYPH)}
            self.won = bool(around & cells) and not (self.task.sober and blstats[25] & 512)
        return 50.0 * self.won


def compare(game, twin, seed, actions) -> list[bytes]:
    """Plays both, to the end of the episode or of the actions; returns the captions."""
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
    assert game.info().named(EXTENDED_FIGURES)["kills"] == twin.kills
    return captions


def random_actions(seed, steps):
    """All actions, more often those that ask something, and `y` after them."""
    rng = random.Random(seed)
    for _ in range(steps):
        yield rng.choice((*(rng.randrange(28) for _ in range(6)), CAST, QUAFF, PICKUP, YES))


CHARACTERS = ("mon-hum-neu-mal", "wiz-elf-cha-fem", "bar-orc-cha-mal", "pri-hum-law-fem")


@pytest.mark.differs(
    "oni",
    there="the extended actions have seven errors and oddities (see the code)",
    here="they are corrected",
    reference="as released",
    where="motif_jax/envs/nethack/extended.py",
)
@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("character", CHARACTERS)
def test_random_play_is_that_of_the_twin(character, reference):
    game = make_game(character=character, reference=reference)
    twin = Twin("score", character=character, reference=reference)
    captions = []
    for episode in range(6):
        captions += compare(game, twin, game_seed(3, SeedStream.TRAIN, episode), random_actions(episode, 1500))
    said = b"\n".join(captions)
    assert (b"What do you want to drink" in said) == (character != "bar-orc-cha-mal")
    assert b"Are you sure you want to pray" in said
    assert (b"You don't know any spells" in said) == (character.startswith("bar") and not reference)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("task", ["score", "staircase", "staircase_lvl3", "staircase_lvl4", "oracle", "oracle_sober"])
def test_with_texts_that_are_rare_play_is_that_of_the_twin(task, reference):
    game = make_game(task, reference=reference, character="wiz-hum-neu-mal")
    game._raw = WhisperingEngine(game, whisper)
    twin = Twin(task, reference=reference, character="wiz-hum-neu-mal", say=whisper)
    captions = []
    for episode in range(4):
        captions += compare(game, twin, game_seed(4, SeedStream.TRAIN, episode), random_actions(episode, 1000))
    assert len(captions) > 500
    assert b"You descend the stairs." in captions or task == "staircase"


def reset(game, core=12, disp=34):
    game.reset(GameSeed(core, disp, 0))
    return game


@pytest.mark.quick
def test_the_28_actions_are_those_of_the_specification():
    assert EXTENDED_KEYS[:23] == KEYS
    assert bytes(EXTENDED_KEYS[23:]) == b"Zq\xf0,p"
    assert EXTENDED_NAMES[22:] == ("search", "cast", "quaff", "pray", "pickup", "pay")
    assert GameSettings(actions="extended").action_names == EXTENDED_NAMES
    assert GameSettings(actions="extended").make(Frames(1, FRAME).views(0)).num_actions == 28


@pytest.mark.quick
def test_the_first_spell_is_cast_and_its_direction_is_the_players():
    game = reset(make_game(character="wiz-hum-neu-mal"))
    game.step(CAST)
    assert game.message == b"In what direction? "
    game.step(1)
    assert game.message != b"In what direction? "
    assert game.buffers["blstats"][20] == 2  # a turn has passed


@pytest.mark.quick
@pytest.mark.parametrize("reference", [False, True])
def test_who_knows_no_spell_is_told_so(reference):
    """The release then applies something, and is asked what; that is declined."""
    game = reset(make_game(character="bar-hum-neu-mal", reference=reference))
    game.step(CAST)
    assert (game.message == b"You don't know any spells right now.") != reference


@pytest.mark.quick
def test_casting_while_a_question_is_open_only_answers_it():
    game = reset(make_game(character="wiz-hum-neu-mal"))
    game.step(KICK)
    assert game.message == b"In what direction? "
    energy = int(game.buffers["blstats"][14])
    game.step(CAST)
    assert b"spell" not in game.message
    assert game.buffers["blstats"][14] == energy


@pytest.mark.quick
def test_y_drinks_the_first_that_is_offered_and_other_actions_decline():
    game = reset(make_game())
    game.step(QUAFF)
    assert game.message == b"What do you want to drink? [e or ?*] "
    game.step(WAIT)
    assert game.message == b"Never mind."
    game.step(QUAFF)
    game.step(YES)
    assert b"What do you want to drink" not in game.message
    assert game.message != b"Never mind."
    assert game.buffers["blstats"][20] == 2


@pytest.mark.differs(
    "oni",
    there="questions about drinking are left to the player in all tasks",
    here="they are left to the player of the extended actions; with Motif's actions, nothing can be drunk",
)
@pytest.mark.quick
def test_questions_about_drinking_are_for_the_player_of_the_extended_actions():
    plain, extended = NetHackGame(TASKS["score"], Frames(1, FRAME).views(0)), make_game()
    for game in (plain, extended):
        game._raw = WhisperingEngine(game, lambda number, page, question: "You drink where?" if question else "")
        reset(game)
        game.step(KICK)
        assert game.opened_question == (game is extended)


def say_at(texts):
    """Says each of the texts after the key of its number."""
    return lambda number, page, question: texts.get(number, "")


class RecordingEngine(WhisperingEngine):
    """Keeps the keys that it is sent."""

    def __init__(self, game):
        super().__init__(game, say_nothing)
        self.sent = []

    def step(self, key):
        self.sent.append(chr(key))
        super().step(key)


def play(game, action, **texts):
    """The keys that an action becomes, where the game says other texts after some of them."""
    engine = game._raw
    engine.sent.clear()
    engine._say = say_at({engine._number + int(after[-1]): text for after, text in texts.items()})
    game.step(action)
    return "".join(engine.sent)


@pytest.mark.quick
def test_a_skill_is_enhanced_when_no_question_is_open():
    game = make_game()
    game._raw = RecordingEngine(game)
    reset(game)
    enhance = "\xe5a "  # nothing can be enhanced yet, so the menu stays until a space closes it
    assert play(game, WAIT, key1="You feel more confident in your fighting skills.") == "." + enhance
    assert play(game, WAIT) == "."
    kick = play(game, KICK, key1="In what direction?  You feel more confident in your skills.")
    assert kick == "\x04"  # the question is open
    assert play(game, 1) == "k" + enhance
    game._confident = True
    reset(game)
    assert play(game, WAIT) == "."


@pytest.mark.quick
@pytest.mark.parametrize("reference", [False, True])
def test_after_a_declined_question_a_skill_is_enhanced_at_once_and_by_the_release_in_the_next_step(reference):
    game = make_game(reference=reference)
    game._raw = RecordingEngine(game)
    reset(game)
    game._confident = True
    assert play(game, KICK, key1="Really kick? [yn]") == "\x04\x1b" + "\xe5a " * (not reference)
    assert play(game, WAIT) == "." + "\xe5a" * reference


@pytest.mark.quick
@pytest.mark.parametrize("reference", [False, True])
def test_a_text_between_the_keys_of_a_spell_announces_a_skill_only_to_the_release_and_only_before_a_page(reference):
    game = make_game(character="wiz-hum-neu-mal", reference=reference)
    game._raw = RecordingEngine(game)
    reset(game)
    between = game._raw._number + 1

    def say(number, page, question):
        game._internal[AT_PAGE] |= number == between + 1
        return "You feel more confident in your skills." if number == between else ""

    game._raw._say = say
    game.step(CAST)
    assert "".join(game._raw.sent[-5:]).endswith("Za " + "\xe5a" * reference)


def test_a_monk_becomes_skilled_in_martial_arts():
    """Play in which the game itself says so, found by search."""
    game, player = make_game(), make_scripted("explorer", make_world({}), 1)
    seed = game_seed(5, SeedStream.COLLECT, 27)
    player.begin(0, seed)
    game.reset(seed, 27)
    for _ in range(2177):
        game.step(player.choose(0, game))
    assert game.message == b"You are now more skilled in martial arts."
    assert not game._confident
    assert game._kills > 10


@pytest.mark.quick
def test_kills_are_a_figure_of_the_episode_that_begins_anew():
    game = make_game()
    game._raw = WhisperingEngine(game, lambda number, page, question: "You kill the newt!  You kill it!")
    reset(game)
    game.step(WAIT)
    assert game.info().named(EXTENDED_FIGURES)["kills"] == 2
    reset(game)
    assert game.info().named(EXTENDED_FIGURES)["kills"] == 0
    assert "kills" not in FIGURES


@pytest.mark.quick
def test_a_group_of_games_tells_the_kills_of_its_episodes():
    world = make_world({"actions": "extended", "max_episode_steps": 300})
    vector = world.vector(2, ("message",), seed=3, stream=SeedStream.TRAIN)
    rows = {
        key: np.zeros((2, *spec.shape), spec.dtype)
        for key, spec in (step_specs() | {"message": CAPTIONS["message"]}).items()
    }
    opened, rng, ended = vector.open_rows(rows), np.random.default_rng(0), []
    vector.reset()
    for _ in range(900):
        vector.step(rng.integers(28, size=2).tolist(), opened)
        ended += [info.named(world.figures) for _, info in vector.finished]
    vector.close()
    assert len(ended) >= 6
    assert max(row["kills"] for row in ended) > 0


@pytest.mark.quick
@pytest.mark.parametrize("task", ["toy", "motif_jax.envs.toy:ToyGame"])
def test_other_games_have_no_extended_actions(task):
    with pytest.raises(UserError, match=r"the actions 'extended' are NetHack's.*--config.env.actions"):
        GameSettings(task=task, actions="extended").check()


@pytest.mark.quick
def test_with_its_23_actions_an_extended_game_differs_in_drinking_and_skills_alone():
    """Where neither comes up, the same actions are the same game."""
    plain, extended = NetHackGame(TASKS["score"], Frames(1, FRAME).views(0)), make_game()
    for episode in range(3):
        seed = game_seed(8, SeedStream.TRAIN, episode)
        plain.reset(seed)
        extended.reset(seed)
        for action in np.random.default_rng(episode).integers(23, size=500).tolist():
            assert plain.step(action) == extended.step(action)
            assert plain.message == extended.message
            assert plain.end == extended.end
            if plain.end:
                break
