"""The sample report of the documentation, docs/sample.html, from the workdir of a quickstart.

    bash launch/quickstart.sh --config.report.replays=4    # so that the page stays below 600 kB
    python tests/sample_report.py runs/quickstart

It is the run's page without the links to other pages of its workdir. It is committed, as a build of the documentation
should not train for ten minutes.
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
