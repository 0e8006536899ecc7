import re
import shlex
import subprocess
import sys

import pytest
from absl import flags
from conftest import ROOT
from sample_report import SAMPLE

from motif_jax.config.renamed import RENAMED
from motif_jax.config.table import check_values, keys
from motif_jax.experiment import tables
from motif_jax.launch import define_flags, read_flags, split_config
from motif_jax.stages import NAMES

pytestmark = pytest.mark.repository

PAGES = [*ROOT.glob("*.md"), ROOT / "llms.txt", *(ROOT / "docs").rglob("*.md"), *(ROOT / "third_party").glob("*.md")]
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
SITE = ROOT / "launch/site/mkdocs.yml"


def anchors(page) -> set[str]:
    text = page.read_text()
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a name="([^"]+)"', text))


@pytest.mark.quick
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_an_anchor_that_exist(page):
    links = LINK.findall(CODE.sub("", page.read_text()))
    wrong = []
    for link in links:
        if re.match(r"https?://[\w.-]+\.\w+(/|$)", link):
            continue
        target, _, anchor = link.partition("#")
        found = (page.parent / target).resolve() if target else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            wrong.append(link)
    assert not wrong


def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(SITE), "-d", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 'href="../own-game/#attributes-of-a-world"' in (tmp_path / "own-network/index.html").read_text()
    assert (tmp_path / "launch/agent.gif").is_file()
    assert (tmp_path / "results/motif_seeds.csv").is_file()
    assert 'href="sample.html"' in (tmp_path / "index.html").read_text()
    assert (tmp_path / "sample.html").read_bytes() == SAMPLE.read_bytes()


@pytest.mark.quick
def test_the_sample_report_is_one_small_file_that_works_alone():
    text = SAMPLE.read_text()
    assert len(text.encode()) <= 600_000
    links = re.findall(r'(?:href|src)="([^"]+)"', text)
    assert not [link for link in links if not link.startswith(("#", "data:"))]
    assert "<h1>An agent that likes what the rules like</h1>" in text


FOR_THE_READER = re.compile(r"(?<==)(\$\w+|[A-Z])$")  # --config.seed=$seed, --config.distributed.process_id=I


def commands(text: str) -> list[list[str]]:
    """The words of each command of the program in the blocks of a page, from its name or a SLURM script on."""
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    lines = re.findall(r"(?:motif_jax\.launch|motif-jax|\S+\.sbatch) --.*", blocks)
    split = (shlex.split(line, comments=True) for line in lines if "${" not in line)  # the body of a shell function
    return [[FOR_THE_READER.sub("1", word) for word in words if word != "&"] for words in split]


COMMANDS = [(page, command) for page in PAGES for command in commands(page.read_text())]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("page", "command"), COMMANDS, ids=[f"{one.name}-{at}" for at, (one, _) in enumerate(COMMANDS)]
)
def test_commands_of_the_documentation_can_be_given(page, command, monkeypatch):
    monkeypatch.chdir(ROOT)
    values = flags.FlagValues()
    define_flags(values)
    file_and_argument, rest = split_config(command)
    read_flags(*file_and_argument, rest, values)
    check_values(values.config.to_dict(), tables())
    assert set(values.stage or ()) <= set(NAMES)


@pytest.mark.quick
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_flags_and_scripts_that_a_page_names_exist(page):
    text, known = page.read_text(), {*keys(tables()), *RENAMED}
    named = set(re.findall(r"--config\.([a-z_]+(?:\.[a-z_]+)*)", text))
    assert not [name for name in named if name not in known and not any(key.startswith(f"{name}.") for key in known)]
    assert not [script for script in re.findall(r"\bbash (launch/\S+\.sh)", text) if not (ROOT / script).is_file()]
