"""A world of a user's own that is played by writing."""

from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.envs.text_world import TextWorld
from motif_jax.structs import EndStatus


class Echo(TextGame):
    """The longer the text, the better; three of them."""

    def open(self):
        return "Say something long."

    def answer(self, text):
        end = EndStatus.TASK_SUCCESSFUL if self.steps == 2 else EndStatus.RUNNING
        return Answer(f"{text}!", float(len(text)), end)

    def draw(self, chance):
        return "la" * int(1 + 5 * chance)


class EchoWorld(TextWorld):
    name = "echo"
    about = "a valley with an echo"
    figures = {}
    written, heard = 32, 33
    makers = {}

    def game(self, shown=True):
        return Echo(self.written, self.heard, self.time_limit)
