"""One game of NetHack on the raw engine: actions in, rewards of the task out.

The engine writes into the buffers it is given; a step reads a few numbers from them and copies `blstats` and
`glyphs`. Each action has Motif's key handling (arXiv 2310.00166, appendix; NLE's own, with two changes):

    1. "What do you want to eat? [fg or ?*]" is answered with its first letter by the action `y` and declined by others.
    2. After the action, pages are turned, text prompts escaped and questions declined, unless they are about eating,
       attacking, directions or praying. "You descend the stairs." is kept when its page is turned: NetHack shows this
       message with the old level, and the new level without a message.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from nle import nethack
from nle.nethack import Command, CompassDirection, CompassDirectionLonger, MiscAction, MiscDirection

from motif_jax.captions import WIDTH
from motif_jax.envs.nethack import engine
from motif_jax.envs.nethack.observations import FRAME, SHOWN, count_drawn
from motif_jax.envs.nethack.tasks import PENALTIES, SUCCESS_REWARD, get_task
from motif_jax.envs.world import GameSeed
from motif_jax.structs import EndStatus, EpisodeInfo, Meaning

# The actions of a player and their keys, and the questions that are left to the player.

WAYS = *CompassDirection, *CompassDirectionLonger, *MiscDirection
ACTIONS = MiscAction.MORE, *WAYS, Command.KICK, Command.EAT, Command.SEARCH
EXTENDED = Command.CAST, Command.QUAFF, Command.PRAY, Command.PICKUP, Command.PAY  # more of them, of `ExtendedGame`
KEYS = tuple(int(action) for action in ACTIONS)
EXTENDED_KEYS = (*KEYS, *(int(action) for action in EXTENDED))
ACTION_NAMES = tuple("far " * isinstance(action, CompassDirectionLonger) + action.name.lower() for action in ACTIONS)
EXTENDED_NAMES = (*ACTION_NAMES, *(action.name.lower() for action in EXTENDED))
YES = KEYS.index(ord("y"))  # also: move north-west
FIRST_OFFER = re.compile(rb"\[([A-Za-z])")  # in a question such as "What do you want to eat? [fg or ?*]"
SPACE, ESCAPE = ord(" "), 27
NUL = b"\0"
DESCEND = b"You descend the stairs"
IN_QUESTION, IN_LINE, AT_PAGE, ON_STAIRS_DOWN = 1, 2, 3, 4  # of internal


def offered_key(key: int, prompt: bytes) -> int:
    """Returns the key that replaces `key` while `prompt` asks what to eat or drink.

    For "y" it is the letter right after the bracket, as in `[fg or ?*]`. Other keys decline with SPACE. As in the
    published system, so does "y" if the first offer is not a letter, as in `[$ or ?*]` and `[$ab or ?*]`.
    """
    offered = FIRST_OFFER.search(prompt) if key == KEYS[YES] else None
    return ord(offered[1]) if offered else SPACE


# NetHack's figures of an episode, in addition to those of all worlds.
#
# One is BALROG's progression: the probability, in percent, that a human player wins from the same point. BALROG (arXiv
# 2411.13543) estimates from human games how often players who reach a dungeon level, or an experience level, go on to
# ascend. The progression of an episode is the larger of the numbers for its deepest level and its highest experience
# level; it is 0 at the start and 100 after an ascension.

BY_DEPTH = (  # from dungeon level 1 on
    0, 1.539, 1.754, 2.122, 2.648, 3.543, 4.846, 6.958, 9.771, 12.559,
    16.127, 20.613, 25.66, 29.247, 30.881, 32.491, 34.008, 35.265, 36.549, 37.896,
    39.294, 40.832, 42.584, 44.518, 46.638, 50.676, 55.436, 60.156, 64.65, 69.131,
    71.011, 71.765, 72.321, 72.844, 73.278, 73.685, 74.215, 74.713, 75.373, 76.104,
    76.741, 77.253, 77.716, 78.126, 78.59, 78.903, 79.297, 79.674, 80.185, 80.68,
)  # fmt: skip
BY_EXPERIENCE = (  # from experience level 1 on
    0, 1.848, 2.081, 2.416, 2.911, 3.689, 5.076, 7.454, 11.705, 17.91,
    25.48, 33.265, 41.443, 49.404, 57.788, 62.612, 65.628, 68.102, 70.153, 71.745,
    72.87, 73.71, 74.434, 75.134, 75.855, 76.422, 77.034, 77.598, 77.833, 78.046,
)  # fmt: skip
ASCENDED = 100.0


def progression(max_depth: int, max_experience_level: int, ascended: bool) -> float:
    """Returns the progression of an episode, from 0 to 100."""
    if ascended:
        return ASCENDED
    tables = (BY_DEPTH, max_depth), (BY_EXPERIENCE, max_experience_level)
    # As in BALROG, 0 for levels outside the table.
    return max(table[level - 1] if 1 <= level <= len(table) else 0.0 for table, level in tables)


FIGURES: dict[str, type] = {  # of the last frame before the end; scout: glyphs seen, summed over the levels visited
    "ascended": bool,
    **dict.fromkeys(("score", "turns", "depth", "max_depth", "gold", "experience_level", "scout"), int),
    "progression": float,  # BALROG's, in percent
}
EXTENDED_FIGURES = FIGURES | {"kills": int}  # of games with the extended actions
MEANINGS = (  # of both
    *(Meaning(name, curve=False, compared=False) for name in ("ascended", "depth", "turns")),
    Meaning("kills", better="higher", compared=False),
    Meaning("score", note="at the end", better="higher", verb="scores"),
    Meaning("max_depth", "deepest level", better="higher"),
    Meaning("gold", note="at the end", better="higher"),
    Meaning("experience_level", note="at the end", better="higher"),
    Meaning("progression", note="BALROG's, in percent", better="higher", compared=False),
    Meaning("scout", "squares seen", better="higher", curve=False, compared=False),
)


def make_info(
    *,
    episode: int,
    steps: int,
    episode_return: float,
    end_status: int,
    success: bool,
    max_experience_level: int = 0,
    **figures: float,
) -> EpisodeInfo:
    """Makes the record of an episode.

    `max_experience_level`: the highest so far; levels can be lost. `figures`: all of FIGURES, or of EXTENDED_FIGURES,
    except `progression`, which is computed from them.
    """
    names = EXTENDED_FIGURES if "kills" in figures else FIGURES
    assert figures.keys() == names.keys() - {"progression"}
    highest = max(max_experience_level, int(figures["experience_level"]))
    figures["progression"] = progression(int(figures["max_depth"]), highest, bool(figures["ascended"]))
    return EpisodeInfo(episode, steps, episode_return, end_status, success, tuple(figures[name] for name in names))


EAT_PROMPT = b"What do you want to eat"
STAIRS_HERE = b"There is a staircase down here."

# blstats
X, Y, SCORE, DEPTH, GOLD, LEVEL, TURNS, BRANCH, STAIRS_LEVEL, CONDITION = 0, 1, 9, 12, 13, 18, 20, 23, 24, 25
COUNTED = {"score": SCORE, "turns": TURNS, "depth": DEPTH, "gold": GOLD, "experience_level": LEVEL}  # figures
HALLUCINATING = 512
IN_MOVELOOP, WORTH_SAVING = 3, 5  # of program_state

ORACLE_GLYPH = next(
    glyph
    for glyph in range(nethack.GLYPH_MON_OFF, nethack.GLYPH_PET_OFF)
    if nethack.permonst(nethack.glyph_to_mon(glyph)).mname == "Oracle"
)


class NetHackGame:
    """A game that is reset with a seed and stepped with action numbers; see the module docstring.

    `last_frame` has the frame of the last page that was turned: the last picture of an episode that ends.
    """

    keys, names, figures = KEYS, ACTION_NAMES, FIGURES  # keys and names: by action
    num_actions = len(KEYS)
    left_to_player = re.compile(rb"eat|attack|direction\?|pray")  # questions
    _kills = 0  # counted by `ExtendedGame`

    def __init__(self, settings: Any, buffers: dict[str, np.ndarray], library: str = engine.DLPATH):
        """Makes a game of `GameSettings` that writes its frames into `buffers` (see `observations.Observer.views`).

        `library`: the file of the engine (engine.py).
        """
        with engine.loading(library):
            self._engine = nethack.Nethack(
                observation_keys=(),
                playername=f"Agent-{settings.character}",
                ttyrec=None,
                fix_moon_phase=True,  # otherwise games would depend on the date
            )
        self.library = library
        self._state = {"internal": np.zeros(9, np.int32), "program_state": np.zeros(6, np.int32)}
        self._raw: Any = self._engine._pynethack  # the wrapper builds an unused tuple per step
        self._raw.set_buffers(**buffers, **self._state)
        # Python reads single numbers from a memoryview several times faster than from an array.
        self._blstats = memoryview(buffers["blstats"])
        self._message = memoryview(buffers["message"])
        self._internal = memoryview(self._state["internal"])
        self._line_or_page = memoryview(self._state["internal"][IN_LINE : AT_PAGE + 1].view(np.int64))  # both at once
        self._program_state = memoryview(self._state["program_state"])
        self._glyphs = memoryview(buffers["glyphs"]).cast("B")
        self.buffers = buffers
        self.last_frame = {key: np.zeros(FRAME[key].shape, FRAME[key].dtype) for key in buffers}
        self._last_blstats = memoryview(self.last_frame["blstats"])
        self._last_glyphs = memoryview(self.last_frame["glyphs"]).cast("B")
        self._screens = [key for key in SHOWN if key in buffers]
        self.task = get_task(settings.task)
        self._max_steps = settings.max_episode_steps
        self._penalty, self._penalty_step = PENALTIES[settings.penalty_mode], settings.penalty_step
        self._patience = settings.no_progress_steps or 2**62
        self._constant_penalty = settings.penalty_mode == "constant"
        self._reference_sober = settings.reference_sober
        self._stairs_message = settings.stairs_message
        self._is_score = self.task.is_score

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        raw = self._raw
        self._send = raw.step
        raw.set_initial_seeds(seed.core, seed.disp, False, None)
        raw.reset()
        self.addresses = engine.patch(self._engine, seed.core, self.library)
        for _ in range(1000):  # messages about the moon, or a request to name an object on the first square
            if self._program_state[IN_MOVELOOP]:
                break
            raw.step(ESCAPE if self._internal[IN_LINE] else SPACE)
        else:  # as on a full disk
            raise RuntimeError(f"NetHack did not start a game within 1,000 keys (seed {seed})")
        self.episode = episode
        self.steps = 0
        self.episode_return = 0.0
        self.success = False
        self.end = EndStatus.RUNNING
        self._frozen = self._asked = 0
        self._score = self._blstats[SCORE]
        self._turns = self._blstats[TURNS]
        self._max_depth, self._max_level = self._blstats[DEPTH], self._blstats[LEVEL]
        self._explored: dict[tuple[int, int], int] = {}
        self._here = self._blstats[BRANCH], self._blstats[STAIRS_LEVEL]
        self.message = bytes(self._message).rstrip(NUL)
        self.message_counts = {self.message: 1}
        self.message_count = 1

    def step(self, action: int, pressed: bool = False) -> float:
        """Plays one action, updates `end`, `message` and `message_count`, and returns the reward.

        At the end of an episode, `message` is the last text that was shown and `last_frame` its frame. `pressed`: the
        key was pressed by `world.Loop`.
        """
        blstats = self._blstats
        if not pressed:
            message = self.message
            key = self.keys[action]
            if EAT_PROMPT in message:
                key = offered_key(key, message)
            self._last_blstats[:] = blstats
            self._last_glyphs[:] = self._glyphs
            self._asked = self._internal[IN_QUESTION]
            self._send(key)
        if self._line_or_page[0] or self._internal[IN_QUESTION]:
            message = self._settle()
        else:
            message = bytes(self._message).rstrip(NUL)
        if self._stairs_message and not message and self._stepped_onto_stairs():
            message = self._show(STAIRS_HERE)
        self.message = message
        counts = self.message_counts
        self.message_count = counts[message] = counts.get(message, 0) + 1
        self.steps += 1

        if not self._program_state[WORTH_SAVING] and self._raw.done():  # asking the engine takes five times as long
            self.end = EndStatus.DEATH
            self.last_frame["message"][:] = np.frombuffer(message.ljust(WIDTH, NUL), np.uint8)
            reward = self._penalty(0, self._penalty_step) if self._is_score else 0.0
        else:
            here = blstats[BRANCH], blstats[STAIRS_LEVEL]
            if here != self._here:
                self._explored[self._here] = count_drawn(self.last_frame["glyphs"])
                self._here = here
                self._max_depth = max(self._max_depth, blstats[DEPTH])
            if blstats[LEVEL] > self._max_level:  # it can be lost again
                self._max_level = blstats[LEVEL]
            turns = blstats[TURNS]
            self._frozen = self._frozen + 1 if turns == self._turns else 0
            self._turns = turns
            if self._is_score:
                score = blstats[SCORE]
                reward = float(score - self._score)
                self._score = score
                if not self._constant_penalty:
                    reward += self._penalty(self._frozen, self._penalty_step)
                elif self._frozen:
                    reward += self._penalty_step
            else:
                reward = self.goal_reward(message)
            if not self.end and (self.steps >= self._max_steps or self._frozen >= self._patience):
                self.end = EndStatus.ABORTED
            if self.end:
                for name, frame in self.last_frame.items():
                    frame[...] = self.buffers[name]
        self.episode_return += reward
        return reward

    def info(self) -> EpisodeInfo:
        blstats = self._last_blstats if self.end else self._blstats
        drawn = count_drawn((self.last_frame if self.end else self.buffers)["glyphs"])
        figures: dict[str, Any] = {name: blstats[place] for name, place in COUNTED.items()}
        figures |= {"max_depth": self._max_depth, "max_experience_level": self._max_level}
        if "kills" in self.figures:
            figures["kills"] = self._kills
        figures["ascended"] = self._engine.how_done() == nethack.ASCENDED and self.end == EndStatus.DEATH
        # As published: drawn squares, summed over levels as the hero last saw them.
        figures["scout"] = sum((self._explored | {self._here: drawn}).values())
        played: dict[str, Any] = {"steps": self.steps, "episode_return": self.episode_return, "success": self.success}
        return make_info(episode=self.episode, end_status=int(self.end), **played, **figures)

    @property
    def cause(self) -> str:
        return engine.cause_of_death(self._engine) if self.end == EndStatus.DEATH else ""

    @property
    def on_stairs(self) -> bool:
        return bool(self._internal[ON_STAIRS_DOWN]) and not self.end

    @property
    def opened_question(self) -> bool:
        return bool(self._internal[IN_QUESTION]) and not self._asked and not self.end

    def _stepped_onto_stairs(self) -> bool:
        """Whether the last step led to stairs down on the same level; arriving by stairs does not count."""
        before, now = self._last_blstats, self._blstats
        moved = (before[X], before[Y]) != (now[X], now[Y])
        same_level = (before[BRANCH], before[STAIRS_LEVEL]) == (now[BRANCH], now[STAIRS_LEVEL])
        return bool(self._internal[ON_STAIRS_DOWN]) and moved and same_level

    def goal_reward(self, message: bytes) -> float:
        """Returns the reward of a task other than the score after this message; it may end the episode."""
        task = self.task
        if task.stairs_level:
            reached = DESCEND in message and self._blstats[STAIRS_LEVEL] == task.stairs_level
        else:
            x, y = self._blstats[X], self._blstats[Y]
            around = self.buffers["glyphs"][max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
            condition = self._blstats[CONDITION]
            sober = condition != HALLUCINATING if self._reference_sober else not condition & HALLUCINATING
            reached = bool((around == ORACLE_GLYPH).any()) and (sober or not task.sober)
        if not reached or (task.continual and self.success):
            return 0.0
        self.success = True
        if not task.continual:
            self.end = EndStatus.TASK_SUCCESSFUL
        return SUCCESS_REWARD

    def close(self) -> None:
        self._engine.close()

    def _settle(self) -> bytes:
        """Turns pages and declines questions until the game waits for an action or is over; returns the message."""
        raw, internal = self._raw, self._internal
        self._kept = shown = b""
        while not raw.done():
            if internal[AT_PAGE]:
                page = self._read()
                if DESCEND in page:
                    self._kept = page
                if page:  # later pages of the end (inventory, tombstone) lack a message, then the bottom line
                    shown = page
                    self._last_blstats[:] = self._blstats
                    for name in self._screens:
                        self.last_frame[name][...] = self.buffers[name]
                raw.step(SPACE)
            elif internal[IN_LINE]:
                self._escape()
            else:
                if internal[IN_QUESTION] and not self._leaves(bytes(self._message)):
                    self._escape()
                break
        if raw.done():
            return shown
        message = self._read()
        return self._show(self._kept) if self._kept else message

    def _read(self) -> bytes:
        return bytes(self._message).rstrip(NUL)

    def _show(self, message: bytes) -> bytes:
        self._message[:] = message.ljust(WIDTH, NUL)
        return message

    def _leaves(self, question: bytes) -> bool:
        return self.left_to_player.search(question) is not None

    def _escape(self) -> None:
        self._raw.step(ESCAPE)


CAST, ENHANCE = int(Command.CAST), int(Command.ENHANCE)
FIRST = ord("a")  # of a menu
DRINK_PROMPT = b"What do you want to drink"
CONFIDENT = b"feel more confident in your"
KILL = b"you kill "  # in any case
LEFT_BY_RELEASE = re.compile(rb"eat|attack|direction\?|pray|drink")


class ExtendedGame(NetHackGame):
    """ONI's extended actions (arXiv 2410.23022): five keys more than Motif's, and three automatic key sequences.

        CAST    presses Z, then `a` for the first spell in the menu; the player chooses the direction
        QUAFF   answers "What do you want to drink? [fg or ?*]" like the question about eating (`offered_key`)
        skills  after "You feel more confident in your ... skills.", enhances the first possible skill when no question
                is open. The game's reply is then the message of the step, unless the step descended the stairs

    The player also answers questions about drinking. Episodes have an additional figure `kills`, the number of times
    that the game said "you kill ". All state is reset at the start of an episode.

    ONI's release differs in six points, which `reference` reproduces:

        1. Questions for the player are found by lower-case words and by substrings: "Drink from the fountain?" is
           declined, and "great" matches "eat".
        2. "You descend the stairs." is lost if a key other than SPACE follows in the same step, as for a skill; while
           it is kept, it hides the question that follows, which is declined.
        3. `a` follows every Z, even if the player does not know a spell, or if Z is the letter of food or a drink.
        4. `kills` counts a message one step later and once, and misses pages that are turned and the last message.
        5. After the keys for a skill, pages and questions are left for the player's next key.
        6. A text that it escapes can announce a skill, and so can the one between Z and `a` if the game shows a page
           after `a`. The texts after `a`, after a question that it declines and after the keys for a skill, and those
           that a kept "You descend the stairs." hides, do so only if they are still shown after its next key.
    """

    keys, names, figures = EXTENDED_KEYS, EXTENDED_NAMES, EXTENDED_FIGURES
    num_actions = len(EXTENDED_KEYS)
    left_to_player = re.compile(rb"\b(eat|attack|pray|drink)(ing)?\b|direction\?", re.IGNORECASE)

    def __init__(self, settings: Any, *arguments: Any):
        super().__init__(settings, *arguments)
        self._reference = settings.reference_extended  # the errors of ONI's release
        self._line_or_page = memoryview(b"\1")  # makes `step` call `_settle` always, because each message matters

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        super().reset(seed, episode)
        self._send = self._press
        self._kills = 0
        self._confident = False  # a skill can be enhanced
        self._kept = self._last_text = b""
        self._unseen = False  # whether the release does not look at the next text

    def close(self) -> None:
        self._send = None
        super().close()

    def _press(self, key: int) -> None:
        """Sends the key of an action, and `a` for a spell."""
        raw, internal, message = self._raw, self._internal, self.message
        if self._reference:
            self._kills += KILL in message.lower()
        answers = bool(internal[IN_QUESTION]) or EAT_PROMPT in message
        if DRINK_PROMPT in message:
            key, answers = offered_key(key, message), True
        self._last_text, self._unseen = b"", False
        raw.step(key)
        if key != CAST or raw.done():
            return
        if self._reference:
            between = bytes(self._message)
            raw.step(FIRST)
            self._confident |= bool(internal[AT_PAGE]) and CONFIDENT in between
            self._unseen = True
        elif not answers and internal[AT_PAGE]:  # the page is the menu of spells
            raw.step(FIRST)

    def _settle(self) -> bytes:
        self._declined = False  # whether the release has declined a question in this step
        message = super()._settle()
        raw, internal = self._raw, self._internal
        blocked = internal[IN_QUESTION] and not self._declined
        if self._confident and not raw.done() and not blocked:
            self._confident = False
            stairs = self._kept
            raw.step(ENHANCE)
            if self._reference:
                raw.step(FIRST)
                return super()._read()
            if internal[AT_PAGE]:
                raw.step(FIRST)
            message = super()._settle()
            if stairs:
                message = self._show(stairs)
        return message

    def _read(self) -> bytes:
        """Returns the game's message, and looks for skills and kills in it."""
        text = super()._read()
        unseen, self._unseen = self._unseen or (self._reference and bool(self._kept)), False
        if text != self._last_text and not unseen:  # a text stays in the buffer while a menu covers it
            self._last_text = text
            self._confident |= CONFIDENT in text
            if not self._reference:
                self._kills += text.lower().count(KILL)
        return text

    def _leaves(self, question: bytes) -> bool:
        if not self._reference:
            return super()._leaves(question)
        self._declined = bool(self._kept) or LEFT_BY_RELEASE.search(question) is None
        return not self._declined

    def _escape(self) -> None:
        if self._reference:
            self._read()
            self._kept, self._unseen = b"", self._declined
        super()._escape()
