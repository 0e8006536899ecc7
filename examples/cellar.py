"""A text game: find the key in a dark cellar, and open the door."""

from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.envs.text_world import TextWorld
from motif_jax.structs import EndStatus

PLACES = ("shelf", "table", "barrel", "floor")
MOVES = (*(f"look on the {place}" for place in PLACES), "open the door")


class Cellar(TextGame):
    """The game says where the key is; the agent fetches it, and opens the door."""

    def open(self):  # the world's first text; "" for none
        place = self.random.choice(PLACES)
        self.hidden = place, False  # not yet found; replaced, and never changed
        return f"It is dark. Something on the {place} glints."

    def answer(self, text):  # the world's answer, the reward of the text, and whether the episode ends
        place, has_key = self.hidden
        if has_key and text == "open the door":
            return Answer("You are free!", 1.0, EndStatus.TASK_SUCCESSFUL)
        self.hidden = place, has_key or text == f"look on the {place}"
        if self.steps == 5:  # texts before this one
            return Answer("The light goes out.", -0.1, EndStatus.ENDED)
        return Answer("You have the key." if self.hidden[1] else "Nothing happens.", -0.1)

    def draw(self, chance):  # the text of the player `random`, for a number in [0, 1)
        return MOVES[int(chance * len(MOVES))]


class CellarWorld(TextWorld):
    """How it is played."""

    name, about = "cellar", "a dark cellar with a locked door"
    figures, makers = {}, {}  # numbers of an episode; scripted players
    written, heard = 32, 64  # most bytes of the agent's texts and of the world's
    moves = MOVES  # only for a policy that chooses

    def game(self, shown=True):
        return Cellar(self.written, self.heard, self.time_limit)
