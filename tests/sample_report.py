"""The sample report of the documentation, docs/sample.html, from the workdir of a quickstart.

    python tests/sample_report.py runs/quickstart    writes it

It is the run's page without the links to other pages of its workdir.
"""

import re
import sys
from pathlib import Path

SAMPLE = Path(__file__).parent.parent / "docs/sample.html"
ELSEWHERE = re.compile(r'( · )?<a href="\.\./[^"]*">[^<]*</a>')


def main(workdir: str) -> None:
    text = (Path(workdir) / "report/index.html").read_text(encoding="utf-8")
    SAMPLE.write_text(ELSEWHERE.sub("", text), encoding="utf-8")
    print(f"{SAMPLE}: {SAMPLE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
