"""Worlds of motif_jax as an OpenEnv server.

    python -m motif_jax_openenv --env='{"world": "wordle"}' --port=8000

`env` has the values of the config section `env`. Clients connect with `GenericEnvClient(base_url="http://localhost:8000")`;
`reset(seed=7)` begins the episode of this seed, and `step({"text": "crane"})` plays. Each client has its own game.
"""

import argparse
import json
import secrets

import uvicorn
from fastapi.responses import JSONResponse
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from pydantic import Field

from motif_jax.config.table import Whole, shown
from motif_jax.envs.conversation import LONGEST, Conversation, Heard
from motif_jax.structs import UserError, legible

CLIENTS = 64  # at once
LARGEST = 2**20  # bytes of a client's message


class Say(Action):
    """What the agent writes."""

    text: str = Field(max_length=LONGEST)


class Seen(Observation):
    """What the world says."""

    text: str


class Game(Environment):
    """One game."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env):
        """Takes the values of the config section `env`."""
        super().__init__()
        self._talk, self._state = Conversation(env), State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        """Begins the episode of a seed, which is drawn if it is not given."""
        self._state = State(episode_id=episode_id)
        return self._seen(self._talk.begin(secrets.randbits(31) if seed is None else seed), self._talk.about + "\n\n")

    def step(self, action, timeout_s=None, **kwargs):
        """Plays a text."""
        self._state.step_count += 1
        return self._seen(self._talk.say(action.text))

    @property
    def state(self):
        """The episode's id and its steps."""
        return self._state

    def close(self):
        """Frees the game."""
        self._talk.close()

    def _seen(self, heard: Heard, before: str = "") -> Seen:
        return Seen(text=before + heard.text, reward=heard.reward, done=heard.done)


def make_app(env):
    """The application of a server; raises UserError for values that cannot work."""
    Conversation(env).close()
    app = create_app(lambda: Game(env), Say, Seen, max_concurrent_envs=CLIENTS)
    # POST /step has a game of its own each time, which has not begun: episodes need the WebSocket.
    app.add_exception_handler(UserError, lambda _, error: JSONResponse({"detail": str(error)}, status_code=400))
    return app


def read_env(text):
    """The values of the flag --env; raises UserError if they are not JSON."""
    with legible(f"{shown(text)} as JSON", "--env", RecursionError):
        return json.loads(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="{}", help="values of the config section env, as JSON")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    try:
        Whole(0, 2**16 - 1).check("port", "--port", arguments.port)  # uvloop would take the remainder
        app = make_app(read_env(arguments.env))
    except UserError as wrong:
        parser.error(str(wrong))
    uvicorn.run(app, host=arguments.host, port=arguments.port, ws_max_size=LARGEST)
