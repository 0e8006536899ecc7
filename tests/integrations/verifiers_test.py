"""The taskset for verifiers, played by its own command with a model behind a server on this machine."""

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from motif_jax.envs.conversation import Conversation

pytest.importorskip("verifiers", reason="needs verifiers: launch/test.sh --with-clients")
pytestmark = pytest.mark.clients

ENV = {"world": "wordle"}
WORDS = ["crane", "stone", "north", "zzzzz", "chair", "apple"]


def said(times: int) -> str:
    """What the model writes after so many replies of its own."""
    return WORDS[times % len(WORDS)]


class Model(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = said(sum(message["role"] == "assistant" for message in body["messages"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        piece = {"id": "a", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
        used = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        for more in (
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": used},
        ):
            self.wfile.write(f"data: {json.dumps(piece | more)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *arguments):
        pass


@pytest.fixture
def model():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def played_alone(seed: int) -> float:
    talk, total, times = Conversation(ENV), 0.0, 0
    heard = talk.begin(seed)
    while not heard.done:
        heard = talk.say(said(times))
        total, times = total + heard.reward, times + 1
    return total


def test_a_model_gets_the_rewards_of_the_game(model, tmp_path):
    command = [
        str(Path(sys.executable).with_name("vf-eval")), "motif-jax-verifiers",
        "--env.taskset.world", json.dumps(ENV), "--env.taskset.seeds", "6",
        "--env.player.harness.id", "null", "--env.player.runtime.type", "subprocess",
        "-m", "scripted", "--client.base-url", model,
    ]  # fmt: skip
    env = os.environ | {"OPENAI_API_KEY": "none"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = tmp_path.glob("outputs/*/traces.jsonl")
    rewards = {}
    for line in file.read_text().splitlines():
        episode = json.loads(line)
        (trace,) = episode["traces"]
        assert not trace["errors"], trace["errors"]
        rewards[episode["task"]["data"]["seed"]] = trace["rewards"]["game_reward"]["score"]
    expected = {seed: played_alone(seed) for seed in range(6)}
    assert len(set(expected.values())) > 1  # the model wins some games
    assert rewards == expected
