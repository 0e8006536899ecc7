"""Lists in the documentation, which nobody should have to keep in step by heart."""

import re
import subprocess
import sys

import pytest
import result_tables
from config_values_test import SWITCHES
from conftest import ROOT
from differences import COMMAND, PAGES, differences, with_list
from import_order_test import ARROWS
from nethack_texts import GOALS

from motif_jax.config.table import describe, keys, table_of
from motif_jax.envs.babyai.level_settings import FRENCH_LEVELS, BabyAISettings
from motif_jax.envs.babyai.words import ACTION_SETS, LANGUAGES, REWORDINGS
from motif_jax.envs.nethack.tasks import TASKS
from motif_jax.experiment import plugin_sections, tables
from motif_jax.names import BACKENDS, PLUGINS, SOURCES
from motif_jax.networks.kinds import RANKS
from motif_jax.offline.recipes import RECIPES
from motif_jax.plugins import Plugin
from motif_jax.policies.decoding import KINDS
from motif_jax.rewards.section import JUDGED
from motif_jax.stages import NAMES

pytestmark = [pytest.mark.quick, pytest.mark.repository]
WITHOUT_PLUGINS = """
from pathlib import Path
from motif_jax import plugins
plugins.CONTRIB, plugins.GROUP = Path("/nowhere"), "nowhere"
from motif_jax.config.table import describe
from motif_jax.experiment import plugin_sections, tables
print(describe("markdown", tables(), {}, plugin_sections()))
"""
OWN_SOURCES = [name for name, path in SOURCES.items() if path.startswith("motif_jax.rewards.")]
LISTS = [  # page: what its list must have, as it is written there
    ("docs/program.md", [f"`{name}`" for name in NAMES]),
    ("docs/program.md", [f"`{name.removesuffix('_continual')}`" for name in TASKS]),
    ("configs/motif.py", TASKS),
    ("configs/motif.py", [f"`:score,{switch}`" for switch in SWITCHES]),
    ("docs/annotation.md", [f"`{goal}`" for goal in GOALS]),
    ("docs/babyai.md", [f"`{name}`" for name in (*ACTION_SETS, *REWORDINGS, *LANGUAGES, *FRENCH_LEVELS)]),
    ("docs/babyai.md", [f"`{name}`" for name in table_of(BabyAISettings)]),
    ("docs/code.md", [f"`{room}/`" for room in ARROWS]),
    ("docs/ilql.md", [f"`{name}`" for name in RECIPES]),
    ("docs/ilql.md", [f"`{kind}`" for kind in KINDS]),
    ("docs/own-game.md", [f"`{kind}`" for kind in RANKS]),
    ("docs/rewards.md", [f"| `{source}` |" for source in OWN_SOURCES]),
    ("docs/plugins.md", [f"`{name}`" for name in (*Plugin().tables(), *PLUGINS.by_name)]),
]


@pytest.mark.parametrize(("page", "words"), LISTS)
def test_lists_are_complete(page, words):
    text = (ROOT / page).read_text()
    missing = [word for word in words if word not in text]
    assert not missing, f"{page} does not name {', '.join(missing)}"


@pytest.mark.parametrize(("key", "names"), [
    ("annotate.goal", GOALS), ("policy.sources", OWN_SOURCES), ("policy.online.kind", JUDGED),
    ("annotate.backend", [name for name, path in BACKENDS.items() if ".contrib." not in path]),
])  # fmt: skip
def test_meanings_name_what_texts_may_name(key, names):
    missing = [name for name in names if name not in keys(tables())[key].about]
    assert not missing, f"the meaning of {key} does not name {', '.join(missing)}"


def test_the_page_of_all_values_is_as_the_declarations_say():
    page = (ROOT / "docs/config.md").read_text()
    own = describe("markdown", tables(), {}, plugin_sections())
    assert page == own + "\n", "motif-jax --help=markdown > docs/config.md"
    alone = subprocess.run([sys.executable, "-c", WITHOUT_PLUGINS], capture_output=True, text=True, check=True)
    assert page == alone.stdout, "it is the same with and without plugins"


def test_the_page_of_a_feature_has_the_table_of_its_section():
    text = "\n".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    marked = re.compile(r"^<!-- values of (\w+) -->\n\n(.*?)\n\n<!-- end -->$", re.MULTILINE | re.DOTALL)
    tables_of_pages = dict(marked.findall(text))
    for name in plugin_sections():
        table = describe(f"markdown:{name}", tables(), {})
        assert tables_of_pages.get(name) == table, f"motif-jax --help=markdown:{name}, on its page"


def test_a_choice_that_a_plugin_adds_is_on_a_page_and_in_the_help():
    pages = "\n".join(page.read_text() for page in (ROOT / "docs").glob("*.md") if page.name != "config.md")
    help_text = describe("all", tables(), {})
    chosen = ("worlds", "networks", "algorithms", "judges", "transcript_formats", "online_rewards", "protocols")
    of_plugins = [plugin.tables()[table] for plugin in PLUGINS.by_name.values() for table in chosen]
    for name in {name for names in of_plugins for name in names}:
        assert re.search(rf"\b{name}\b", pages), name
        assert re.search(rf"\b{name}\b", help_text), name


@pytest.mark.parametrize("page", PAGES)
def test_differences_from_an_original_are_those_that_tests_state(page):
    text = (ROOT / "docs" / PAGES[page]).read_text()
    assert text == with_list(page, text, differences()), f"{COMMAND} writes the list of docs/{PAGES[page]}"


def test_data_of_results_is_that_of_the_tables_in_their_pages():
    files = {file.name: file.read_text() for file in result_tables.RESULTS.glob("*.csv")}
    assert files == result_tables.result_tables(), result_tables.COMMAND


def test_the_table_of_slurm_jobs_is_as_the_jobs_ask():
    rows = []
    for job in sorted((ROOT / "launch/slurm").glob("*.sbatch")):
        for part in job.read_text().split("#SBATCH hetjob"):
            asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", part, re.MULTILINE))
            gpus = asked.get("gres", "gpu:none").removeprefix("gpu:")
            rows.append([job.name, asked.get("nodes", "1"), gpus, asked["cpus-per-task"], asked["mem"],
                         asked["time"].removesuffix(":00:00"), asked.get("array", "")])  # fmt: skip
    table = re.findall(r"^\| `(\w+\.sbatch)`[^|]*\|(.*)\|$", (ROOT / "docs/hosts.md").read_text(), re.MULTILINE)
    cells = [[job, *(cell.strip().partition(":")[0] for cell in row.split("|"))] for job, row in table]
    assert sorted(cells) == sorted(rows)
