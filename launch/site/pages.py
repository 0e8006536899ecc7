"""Makes the README the first page of the site, and points links to other files of the repository to its address."""

import configparser
import re
from pathlib import Path
from posixpath import dirname, normpath, relpath

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(!?)\[((?:[^\[\]]|!\[[^\]]*\])*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")

# Cells of tables are broken into lines, and pages are as wide as the README's on GitHub.
STYLE = ".rst-content table td, .rst-content table th { white-space: normal } .wy-nav-content { max-width: 1100px }"


def source() -> str:
    """The address of the repository that setup.cfg names, or ""."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    urls = dict(
        line.split(" = ", 1) for line in parser.get("metadata", "project_urls", fallback="").split("\n") if line
    )
    return urls.get("Source", "").rstrip("/")


def on_files(files, config):
    """Adds the README, its pictures, the style, and llms.txt, in which pages are named as the site has them."""
    files.append(File.generated(config, "site.css", content=STYLE))
    text = (ROOT / "README.md").read_text()
    files.append(File.generated(config, "index.md", content=text))
    for picture in re.findall(r"!\[[^\]]*\]\((?!https?:)([^)]+)\)", text):
        files.append(File.generated(config, picture, abs_src_path=str(ROOT / picture)))
    short = re.sub(r"\]\(docs/([\w/-]+?)(?:README)?\.md\)", r"](\1/)", (ROOT / "llms.txt").read_text())
    files.append(File.generated(config, "llms.txt", content=short.replace("//)", "/)")))
    return files


def on_page_markdown(markdown, page, config, files):
    """Rewrites links: those to pages of the site stay, others go to the repository or become plain text."""
    folder = "." if page.file.src_uri == "index.md" else normpath(f"docs/{dirname(page.file.src_uri)}")

    def rewrite(found):
        picture, text, target, anchor = found.groups(default="")
        path = normpath(f"{folder}/{target}")
        if path == "README.md":
            return f"[{text}]({relpath('docs/index.md', folder)}{anchor})"
        if picture or path.startswith("docs/"):
            return f"{picture}[{text}]({relpath(path, folder).removeprefix('docs/')}{anchor})"
        return f"[{text}]({source()}/blob/main/{path}{anchor})" if source() else text

    return LINK.sub(rewrite, markdown)
