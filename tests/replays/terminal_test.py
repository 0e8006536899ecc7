"""The viewer in a real terminal, of which the test holds the other end."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator

import pytest
from conftest import ROOT
from real_replay import Emulator, play

from motif_jax.replays.replay import describe, save_replay
from motif_jax.replays.scene import ENTER, LEAVE, Canvas, View, compose, open_terminal


class Session:
    def __init__(self, *arguments: str):
        self.master, self.slave = os.openpty()
        self.emulator = Emulator(30, 80)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.output = b""
        self._fed = 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", "motif_jax.launch", "--config=configs/motif.py", *arguments],
            cwd=ROOT, stdin=self.slave, stdout=self.slave, stderr=self.slave, env=os.environ | {"TERM": "xterm"},
        )  # fmt: skip

    def press(self, keys: str, shown: str = "", gone: str = "") -> None:
        """Presses keys, and waits until the screen has one text and not the other."""
        os.write(self.master, keys.encode())
        while shown not in (screen := "\n".join(self.emulator.lines)) or (gone and gone in screen):
            self._read(0.1)

    def wait_until_it_shows(self, canvas: Canvas) -> None:
        """A screen that is drawn in several parts is not to be looked at in between."""
        while True:
            try:
                self.emulator.assert_shows(canvas)
                return
            except AssertionError:  # what pytest tells at its deadline
                self._read(0.1)

    def end(self) -> int:
        while self.process.poll() is None:
            self._read(0.1)
        self._read(0)
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def _read(self, timeout: float) -> None:
        while select.select([self.master], [], [], timeout)[0]:
            self.output += os.read(self.master, 65536)
            timeout = 0
        text = self.output[self._fed :].decode(errors="ignore")  # what is cut here is seen at the next full drawing
        self._fed = len(self.output)
        self.emulator.feed(text)


@pytest.fixture
def session(tmp_path) -> Iterator[Session]:
    save_replay(tmp_path / "replay.npz", play())
    session = Session(
        f"--workdir={tmp_path / 'run'}", "--stage=visualize", "--config.visualize.speed=0.01",
        f"--config.visualize.replay={tmp_path / 'replay.npz'}",
    )  # fmt: skip
    yield session
    session.close()


def test_keys_move_through_the_episode_and_the_terminal_is_restored(session):
    story = describe(play())
    session.press("", "step 0 of 60")
    assert ENTER.encode() in session.output
    session.press(" ", "‖ 0.01/s")
    session.press("gl\033[C", "step 2 of 60")
    session.press("\033OD", "step 1 of 60")
    session.wait_until_it_shows(compose(story, View(1, False, 0.01), 30, 80, keys=True))
    session.press("+\033[A", "‖ 1/s")
    session.press("\033[F", "step 60 of 60")
    session.press("t", "top messages")
    session.press("\033", gone="top messages")
    session.press("?", "next, previous step with a reward")
    session.press("q")
    assert session.end() == 0
    assert termios.tcgetattr(session.slave) == session.before
    after = session.output.partition(LEAVE.encode())[2].decode()
    assert "policy-7680, episode 17: killed by a jackal after 60 steps" in after  # stays when the viewer has gone


@pytest.fixture
def pair() -> Iterator[tuple[int, int]]:
    master, slave = os.openpty()
    yield master, slave
    os.close(master)
    os.close(slave)


@pytest.mark.quick
def test_the_terminal_is_restored_after_errors(pair):
    master, slave = pair
    before = termios.tcgetattr(slave)

    with pytest.raises(KeyboardInterrupt), open_terminal(slave, slave):  # noqa: PT012
        assert termios.tcgetattr(slave) != before
        raise KeyboardInterrupt
    assert termios.tcgetattr(slave) == before
    data = b""
    while len(data) < len(ENTER + LEAVE):  # which come a moment later on a busy machine
        data += os.read(master, 65536)
    assert data.decode() == ENTER + LEAVE
    assert not select.select([master], [], [], 0)[0]  # nothing more


@pytest.mark.quick
def test_keys_have_names_however_they_arrive(pair):
    master, slave = pair
    with open_terminal(slave, slave) as terminal:
        for sent, names in {
            b"q": ["q"], b"\033[A\033[B\033OC": ["up", "down", "right"], b"\033": ["escape"],
            b"\033[5~x": ["page up", "x"], b"\033[1;5C\033[24~": ["", ""],
            b"\xc3\xa4\r": ["", "enter"], b"\x00\t ": ["", "", " "],
        }.items():  # fmt: skip
            os.write(master, sent)
            assert terminal.keys(5.0) == names
        assert terminal.keys(0.0) == []
