import pytest
from readers_test import STRANGE, check_reader

from motif_jax.contrib.guessing.world import SceneFiles


@pytest.mark.quick
@pytest.mark.parametrize("attack", STRANGE)
def test_scenes_that_never_end_are_refused_at_once(tmp_path, attack):
    check_reader(lambda file: SceneFiles(str(file), ""), attack, tmp_path)
