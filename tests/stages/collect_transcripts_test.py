import shutil

import pytest
from conftest import bytes_of, get_config, refusal

from motif_jax import experiment
from motif_jax.actors.recorder import play_episodes
from motif_jax.envs.worlds import make_world
from motif_jax.stages import collect
from motif_jax.structs import UserError
from motif_jax.transcripts.store import Transcripts, TranscriptWriter

pytestmark = pytest.mark.quick
PLAYER = "repeat*0.6+candidate*0.4"


def run(workdir, **changes):
    values = {"env__world": "wordle", "collect__collector": PLAYER, "collect__transcripts": 60} | changes
    experiment.run(get_config(**values).to_dict(), workdir, ["collect"])
    return Transcripts(workdir / "transcripts")


def test_the_games_of_the_scripted_player_are_recorded(tmp_path, capsys):
    transcripts = run(tmp_path)
    games = play_episodes(make_world({"world": "wordle"}), PLAYER, range(60), seed=777)
    assert [transcripts.episode(number) for number in range(60)] == list(games)
    told = capsys.readouterr().out
    assert "collect: 60 episodes, " in told
    assert f"played by {PLAYER}" in told
    assert not (tmp_path / "dataset").exists()


def test_recorded_games_are_not_played_again_and_a_killed_run_goes_on(tmp_path, capsys):
    before = run(tmp_path).fingerprint
    run(tmp_path)
    assert "collect: complete" in capsys.readouterr().out
    (tmp_path / "transcripts/config.json").unlink()  # as if it had been killed between the two files
    assert run(tmp_path).fingerprint == before
    assert (tmp_path / "transcripts/config.json").is_file()
    with pytest.raises(UserError, match=r"--config.collect.transcripts +60 +61\n"):
        run(tmp_path, collect__transcripts=61)


@pytest.mark.parametrize("values", [
    {}, {"collect__collector": "optimal", "collect__branch_player": "repeat", "collect__transcripts": 9},
    {"env__world": "babyai", "collect__collector": "random", "collect__transcripts": 5, "collect__num_workers": 0},
])  # fmt: skip
def test_a_killed_run_plays_what_is_missing(tmp_path, monkeypatch, values):
    whole, played = run(tmp_path / "whole", **values), []

    def killed(*arguments, real=collect.play_texts):
        for number, episodes in real(*arguments):
            played.append(number)
            yield number, episodes
            if len(played) in (2, 4):  # between games
                raise KeyboardInterrupt

    monkeypatch.setattr(collect, "play_texts", killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "parts", **values)
    with (tmp_path / "parts/transcripts.pieces/games.jsonl").open("a") as lines:
        lines.write('{"number": 4, "epis')  # as if it had been killed within a line
    parts = run(tmp_path / "parts", **values)
    assert played == [*range(whole.record["provenance"]["games"])]
    assert bytes_of(tmp_path / "parts/transcripts").keys() == bytes_of(tmp_path / "whole/transcripts").keys()
    assert parts.record == whole.record
    assert not (tmp_path / "parts/transcripts.pieces").exists()


def test_transcripts_that_others_made_are_left_alone(tmp_path):
    writer = TranscriptWriter()
    writer.add(next(iter(play_episodes(make_world({"world": "wordle"}), "wrong", [0], seed=1))))
    writer.write(tmp_path / "transcripts", {})
    refusal(lambda: run(tmp_path), "has other transcripts")
    shutil.rmtree(tmp_path / "transcripts")
    assert len(run(tmp_path)) == 60
