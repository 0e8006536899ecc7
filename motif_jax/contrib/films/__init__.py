"""Films of an episode: a GIF, or an MP4 where imageio-ffmpeg is installed.

    --stage=visualize --config.visualize.export=best.gif

A film has the sheets that the viewer in the terminal shows (replays/scene.py), drawn cell by cell with the monospaced
font that Pillow brings, and at the end the episode's messages. A writer is found by the end of the file's name; it has
`check()`, which raises UserError if it cannot write here, and `write(path, story, speed)` (stages/visualize.py).

`film.py` has it all: sheets with their times, their pixels, the two formats.
"""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(films={".gif": "motif_jax.contrib.films.film:Gif", ".mp4": "motif_jax.contrib.films.film:Mp4"})
