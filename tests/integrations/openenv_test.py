"""The server for OpenEnv, started as its documentation says and played by OpenEnv's own client."""

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from conftest import free_port, wait_for

from motif_jax.envs.conversation import Conversation

OFF = "needs OpenEnv: launch/test.sh --with-clients"
generic_client = pytest.importorskip("openenv.core.generic_client", reason=OFF)
pytestmark = pytest.mark.clients

BABYAI = {"level": "MixedTestLocal", "rewording": "synonyms"}
ENVS = [
    ({"world": "wordle"}, ["crane", "stone", "zzzzz"]),
    ({"world": "babyai", "babyai": BABYAI}, ["turn left", "go forward", "fly"]),
    ({"world": "guessing"}, ["is it an animal?", "is it a cat?"]),
    ({"world": "nethack"}, ["far n", "search", "w"]),
]


@pytest.fixture
def serve():
    servers = []

    def start(env) -> str:
        port = free_port()
        command = [sys.executable, "-m", "motif_jax_openenv", f"--env={json.dumps(env)}", f"--port={port}"]
        server = subprocess.Popen(command)
        servers.append(server)

        def answers() -> bool:
            assert server.poll() is None
            with socket.socket() as place:
                return place.connect_ex(("127.0.0.1", port)) == 0

        wait_for(answers)
        return f"http://127.0.0.1:{port}"

    yield start
    for server in servers:
        server.kill()
        server.wait()


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--env=5", "env must be an object such as"),
        ('--env={"world": "wordle", "options": {}}', "options must be text of up to 4,000 characters, not {}"),
        (f"--env={'[' * 99_999}", "as JSON: maximum recursion depth exceeded"),
        ('--env={"world": ', "cannot read '{\"world\": ' as JSON: "),
        ("--port=99999", "port must be a whole number from 0 to 65,535, not 99999 (--port)"),
        ("--port=-1", "port must be a whole number from 0 to 65,535, not -1 (--port)"),
    ],
)
def test_values_that_cannot_work_are_refused_before_it_serves(flag, message):
    command = [sys.executable, "-m", "motif_jax_openenv", '--env={"world": "wordle"}', flag]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("env", "texts"), ENVS, ids=[env["world"] for env, _ in ENVS])
def test_its_client_gets_the_texts_and_rewards_of_the_game(serve, env, texts):
    with generic_client.GenericEnvClient(base_url=serve(env)).sync() as client:
        for seed in (3, 4):
            talk = Conversation(env)
            heard, result = talk.begin(seed), client.reset(seed=seed)
            assert result.observation["text"] == f"{talk.about}\n\n{heard.text}"
            for step in range(12):
                text = texts[step % len(texts)]
                heard, result = talk.say(text), client.step({"text": text})
                assert (result.observation["text"], result.reward, result.done) == heard
                if heard.done:
                    break


def test_each_client_has_a_game_of_its_own(serve):
    url = serve({"world": "wordle"})
    first, second = (generic_client.GenericEnvClient(base_url=url).sync() for _ in range(2))
    with first, second:
        first.reset(seed=1)
        second.reset(seed=2)
        alone = Conversation({"world": "wordle"})
        alone.begin(1)
        for text in ("crane", "stone", "abide"):
            second.step({"text": "zzzzz"})
            assert first.step({"text": text}).observation["text"] == alone.say(text).text


def test_nonsense_gets_an_error_and_the_episode_goes_on(serve):
    url = serve({"world": "wordle"})
    with generic_client.GenericEnvClient(base_url=url).sync() as client:
        with pytest.raises(RuntimeError, match="no episode is running: begin one"):
            client.step({"text": "crane"})
        with pytest.raises(RuntimeError, match="a seed is a whole number from 0"):
            client.reset(seed=-1)
        first = client.reset(seed=5)
        for nonsense in ({}, {"txt": "crane"}, {"text": 7}, {"text": "a" * 200_000}):
            with pytest.raises(RuntimeError):
                client.step(nonsense)
        assert client.reset(seed=5) == first
        assert client.step({"text": "crane"}).reward == -1.0
    request = urllib.request.Request(
        f"{url}/step", json.dumps({"action": {"text": "crane"}}).encode(), {"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request)
    assert error.value.code == 400
    assert json.loads(error.value.read()) == {"detail": "no episode is running: begin one"}
