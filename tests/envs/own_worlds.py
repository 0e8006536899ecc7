"""A world of a user's own, written against the protocol alone, and others like it that are wrong in one way each."""

import numpy as np

from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import CAPTIONS, CHOICE, SCREEN_SHAPE, Screen, game_seed
from motif_jax.structs import ArraySpec, EndStatus, EpisodeInfo, Meaning

LENGTH = 6


class Walk:
    """One game: the hero starts somewhere in a corridor, and must reach its right end."""

    cause = ""

    def __init__(self, time_limit):
        self.time_limit = time_limit

    def reset(self, seed, episode):
        self.episode, self.steps, self.total, self.turns_back = episode, 0, 0.0, 0
        self.place = seed.core // 2 % (LENGTH - 1)
        self.end, self.counts = EndStatus.RUNNING, {}
        self.say("You stand in a corridor.")

    def say(self, text):
        self.message = text.encode()
        self.message_count = self.counts[self.message] = self.counts.get(self.message, 0) + 1

    def step(self, action):
        self.steps += 1
        self.turns_back += not action
        self.place = max(0, self.place + (1 if action else -1))
        self.end = EndStatus.ABORTED if self.steps >= self.time_limit else EndStatus.RUNNING
        if self.place == LENGTH - 1:
            self.end = EndStatus.TASK_SUCCESSFUL
        self.say("You see the light." if self.end == EndStatus.TASK_SUCCESSFUL else "You walk.")
        reward = float(self.end == EndStatus.TASK_SUCCESSFUL)
        self.total += reward
        return reward

    def info(self):
        return EpisodeInfo(self.episode, self.steps, self.total, int(self.end), self.total > 0, (self.turns_back, 0.5))

    def screen(self):
        chars = np.full(SCREEN_SHAPE, ord(" "), np.uint8)
        chars[3, :LENGTH], chars[3, self.place] = ord("."), ord("@")
        return Screen(chars, np.full(SCREEN_SHAPE, 7, np.uint8), np.array([3, self.place], np.uint8))

    def close(self):
        pass


class Walks:
    def __init__(self, world, num_games, observations, seed, stream, next_episode, stepping):
        self.world, self.keys, self.seed, self.stream = world, observations, seed, stream
        self.games, self.stepping = [world.game() for _ in range(num_games)], stepping
        self.next_episode = next_episode
        self.first, self.finished = np.ones(num_games, bool), []

    def open_rows(self, rows):
        return rows

    def seed_of(self, episode):
        return game_seed(self.seed, self.stream, episode)

    def start(self, index):
        episode = self.next_episode(index)
        self.games[index].reset(self.seed_of(episode), episode)

    def reset(self):
        for index in range(len(self.games)):
            self.start(index)

    def record(self, rows, prefix):
        for index, game in enumerate(self.games):
            for key, value in self.world.seen(game).items():
                if prefix + key in self.keys:
                    rows[prefix + key][index] = value

    def observe(self, rows):
        self.record(rows, "")

    def step(self, actions, rows):
        self.first[:], self.finished = False, []
        for index, (game, action) in enumerate(zip(self.games, actions, strict=True)):
            self.stepping[0] = index + 1
            rows["reward"][index] = game.step(action)
        self.record(rows, "event_")
        for index, game in enumerate(self.games):
            if game.end:
                rows["truncated" if game.end == EndStatus.ABORTED else "terminated"][index] = True
                self.finished.append((index, game.info()))
                self.first[index] = True
                self.start(index)

    def close(self):
        pass


class Corridor:
    name, about = "corridor", "a walk in a corridor"
    action, action_names = CHOICE, ("back", "on")
    figures = {"turns_back": int, "luck": float}
    specs = CAPTIONS | {"place": ArraySpec((2,), "float32")}
    reads, pairs, players, texts = ("place",), ("message",), ("random",), None

    def __init__(self, max_episode_steps=50, length=LENGTH):
        assert length == LENGTH
        self.time_limit = max_episode_steps

    def check(self):
        pass

    def vector(self, num_games, observations, *, extra_frames, **options):
        return Walks(self, num_games, observations, **options)

    def game(self, shown=True):
        return Walk(self.time_limit)

    def seen(self, game):
        said = np.frombuffer(game.message.ljust(256, b"\0"), np.uint8)
        return {"place": [game.place, 1.0], "message": said, "message_count": game.message_count}

    def plays(self, facts):
        return "" if facts["config"]["env"]["world"] == "own_worlds:Corridor" else "is of another game"


class WrongShape(Corridor):
    name = "wrong"

    def seen(self, game):
        return super().seen(game) | {"place": np.zeros(3)}


def like_the_corridor(**changes):
    return type("Changed", (Corridor,), changes)


Counts = like_the_corridor(name="counts", figures={"steps": int})
Many = like_the_corridor(name="many", action=ArraySpec((2,), "int32"))
Pictures = like_the_corridor(name="pictures", pairs=("message", "place"))
Letters = like_the_corridor(name="letters", action_names="go")
Numbered = like_the_corridor(name="numbered", figures={3: int})
Told = like_the_corridor(name="told", about=b"a walk")
Elsewhere = like_the_corridor(name="elsewhere", texts="/texts")
Narrow = like_the_corridor(name="narrow", specs=Corridor.specs | {"message": ArraySpec((100,), "uint8")})
Blind = like_the_corridor(name="blind", reads=())
ListOfFigures = like_the_corridor(figures=["luck"])
NameOfKind = like_the_corridor(figures={"luck": "float"})
ListOfSpecs = like_the_corridor(specs=["place"])
NoSpec = like_the_corridor(specs=Corridor.specs | {"place": (2,)})
OneReading = like_the_corridor(reads="place")
Numbers = like_the_corridor(players=(1,))
ListOfActions = like_the_corridor(action=["back", "on"])
Meant = like_the_corridor(meanings=(Meaning("luck", better="more"),))
MeantElsewhere = like_the_corridor(meanings=(Meaning("luck"), Meaning("gold")))
Half = type("Half", (), {key: value for key, value in vars(Corridor).items() if key != "plays"})


class Echo(TextGame):
    """A world that is played by writing: the answer is the text itself, the reward its length."""

    def open(self):
        return "Say something long."

    def answer(self, text):
        end = EndStatus.TASK_SUCCESSFUL if self.steps == 2 else EndStatus.RUNNING
        return Answer(f"{text}!", float(len(text)), end)

    def draw(self, chance):
        return "la" * int(1 + 5 * chance)


class EchoWorld(TextWorld):
    name, about = "echo", "a valley with an echo"
    figures, makers = {}, {}
    written, heard = 32, 33

    def game(self, shown=True):
        return Echo(self.written, self.heard, self.time_limit)
