import re
import subprocess
import sys

import pytest
from conftest import ROOT

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
    assert (tmp_path / "launch/report.png").is_file()
    assert (tmp_path / "results/motif_seeds.csv").is_file()
