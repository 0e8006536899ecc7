import numpy as np
import pytest
from browser import browser, find_chromium
from conftest import get_config, run_stage
from report_test import HOSTILE
from report_workdir import STEPS, tell, write_workdir

from motif_jax.envs.gym_world import encode_picture
from motif_jax.replays.replay import load_replay, save_replay
from motif_jax.stages import report

NO_BROWSER = "no Chromium; launch/test.sh installs one as root"
pytestmark = [pytest.mark.journey, pytest.mark.skipif(find_chromium() is None, reason=NO_BROWSER)]

STEP = "Number(document.querySelector('.player .step').textContent)"
PICTURE = "document.querySelector('.player .screen').toDataURL()"
COLOURS = {"Home": (200, 40, 40), "End": (40, 40, 200)}  # of the game's pictures
FOCUS = "document.querySelector('.player').focus()"


@pytest.fixture(scope="module")
def tab():
    with browser() as page:
        yield page


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two runs, of which one is hostile and has pictures; the report compares them."""
    home = tmp_path_factory.mktemp("reports")
    write_workdir(home / "gold")
    write_workdir(home / "hostile", events=HOSTILE, cause=HOSTILE[1])
    packed = [encode_picture(np.full((60, 90, 3), color, np.uint8)) for color in COLOURS.values()]
    ends = np.where(np.arange(STEPS + 1) < STEPS // 2, len(packed[0]), len(b"".join(packed)))
    pictures = {"pictures": np.frombuffer(b"".join(packed), np.uint8), "picture_ends": ends}
    for file in home.glob("hostile/evaluate/*/replays/*.npz"):
        replay = load_replay(file, "")
        save_replay(file, replay._replace(metadata=replay.metadata | {"rewarded_by": "program"}, **pictures))
    tell(home / "hostile")
    for name, other in (("gold", "hostile"), ("hostile", "gold")):
        run_stage(report, get_config("quickstart.py", report__runs=str(home / other)), home / name)
    return home


@pytest.fixture
def show(tab):
    """Opens the report of a workdir. In the end, nothing was wrong with it, and it has asked for nothing else."""

    def shown(workdir):
        tab.errors.clear(), tab.requests.clear()
        tab.open(workdir / "report/index.html")
        tab.wait("document.querySelector('.player').dataset.ready")

    yield shown
    assert (tab.errors, len(tab.requests)) == ([], 1)


@pytest.fixture
def page(show, tab, made):
    show(made / "gold")
    return tab


def test_it_loads_without_errors_and_asks_for_nothing_else(page, made):
    assert page.requests == [(made / "gold/report/index.html").resolve().as_uri()]
    shapes = page.run("[...document.querySelectorAll('.chart')].map(one => one.querySelectorAll('polyline').length)")
    assert len(shapes) >= 10
    assert all(shapes)
    assert page.run("[...document.querySelectorAll('.chart .plot svg')].every(one => one.clientHeight > 100)")


def test_the_player_opens_at_the_largest_reward_and_plays_to_the_end_and_from_the_start_again(page):
    assert page.run(STEP) == 31  # after the action 30
    assert page.run("document.querySelector('.player .learnt').textContent") == "+4.000"
    page.run(FOCUS)
    page.press("Home")
    before = page.run(PICTURE)
    page.run("document.querySelector('.player .speed').value = '100'")
    page.click(".player .play")
    page.wait(f"{STEP} > 3")
    assert page.run(PICTURE) != before
    page.wait(f"{STEP} === {STEPS}")
    page.wait("document.querySelector('.player .play').textContent === 'Play'")
    page.run("document.querySelector('.player .speed').value = '2'")
    page.click(".player .play")
    page.wait(f"{STEP} > 0 && {STEP} < {STEPS}")
    page.click(".player .play")
    assert page.run("document.querySelector('.player .play').textContent") == "Play"


def test_keys_step_play_seek_and_jump_to_rewards(page):
    page.run(FOCUS)
    page.press("Home")
    for key, step in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", STEPS), ("Home", 0)):
        page.press(key)
        assert page.run(STEP) == step, key
    page.press("n")
    paid = page.run(STEP)
    assert paid > 0
    assert page.run("document.querySelector('.player .learnt').textContent").startswith("+")
    page.press("p")
    assert page.run(STEP) == paid  # there is none before it
    page.run("document.querySelector('.player .speed').value = '2'")
    page.press(" ")
    page.wait(f"{STEP} > {paid}")
    page.press(" ")
    still = page.run(STEP)
    page.run("new Promise(done => setTimeout(done, 300))")
    assert page.run(STEP) == still
    speed = page.run("document.querySelector('.player .speed').value")
    page.press("ArrowUp")
    assert float(page.run("document.querySelector('.player .speed').value")) > float(speed)


def test_words_that_do_not_apply_are_not_shown(show, tab, made):
    show(made / "gold")
    seen = tab.run("document.querySelector('.player').innerText")
    assert "bars up are the learnt reward of each step" in seen
    assert "zooms" in seen
    assert "program" not in seen
    show(made / "hostile")  # rewarded by a program, and has pictures
    seen = tab.run("document.querySelector('.player').innerText")
    assert "bars up are the reward by the program of each step" in seen
    assert "Highest rewards by the program" in seen
    assert "learnt" not in seen.replace("learnt", "", 1)  # but in the title of the episode
    assert "zooms" not in seen


DRAWN = (
    "(() => { const real = CanvasRenderingContext2D.prototype.fillText, letters = [];"
    "CanvasRenderingContext2D.prototype.fillText = function (text, x, y) { letters.push([y, x, text]); };"
    "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'End', bubbles: true}));"
    "CanvasRenderingContext2D.prototype.fillText = real;"
    "const wide = document.querySelector('.player .screen').width;"
    "return letters.filter(([, x]) => x < wide); })()"
)


def test_the_status_is_whole_on_a_phone(show, tab, made):
    tab.send("Emulation.setDeviceMetricsOverride", width=400, height=900, deviceScaleFactor=1, mobile=True)
    show(made / "gold")
    tab.run(FOCUS)
    letters = tab.run(DRAWN)
    tab.send("Emulation.clearDeviceMetricsOverride")
    lines = {down: "".join(text for y, _, text in letters if y == down) for down, _, _ in letters}
    assert [*lines.values()][-4:] == [
        "AgenttheCandidateSt:17Dx:14", "Co:11In:13Wi:11Ch:9NeutralS:101",
        f"Dlvl:1$:{STEPS}HP:11(14)Pw:2(2)AC:6Xp:1/0", f"T:{STEPS}Hungry",
    ]  # fmt: skip


def test_hostile_words_do_no_harm(show, tab, made):
    show(made / "hostile")
    tab.run(FOCUS)
    for key in ("ArrowRight", *"nnnnnnnnnn", "End"):
        tab.press(key)
    assert tab.run("window.hacked === undefined && !document.querySelector('img')")
    assert HOSTILE[1] in tab.run("document.querySelector('.player .choice').selectedOptions[0].textContent")


def test_pictures_of_the_game_are_shown(show, tab, made):
    show(made / "hostile")
    pixel = (
        "(() => { const screen = document.querySelector('.player .screen');"
        "return [...screen.getContext('2d').getImageData(screen.width / 2, screen.height / 2, 1, 1).data]; })()"
    )
    tab.run(FOCUS)
    for key in ("Home", "End", "Home"):
        tab.press(key)
        tab.wait(" && ".join(f"Math.abs({pixel}[{at}] - {value}) < 12" for at, value in enumerate(COLOURS[key])))
