"""Writes the results of the study into its page: `python -m studies`, with DIAGEVO_HOME or DIAGEVO_DB where
its runs are.

First the runs become `results.jsonl`. Runs of that file that this database does not have stay, so that the
study can be played in parts; a run that is played again must come to the same memory. From that file alone
come the tables and the figure, so that anybody can work them out again without the runs: `python -m studies
--again`. A few lines of it stand in the README, between two marks.
"""

import os
import sys
from pathlib import Path

from studies.page import BEGIN, PAGE, PICTURE, README, draw, page, with_sentences
from studies.results import BESIDE, RESULTS, collect, joined, planned_runs, read, write


def main() -> None:
    if "--again" not in sys.argv:
        from diagevo.evaluation.ablation import load_plan

        home = Path(os.environ.get("DIAGEVO_HOME", "runs"))
        url = os.environ.get("DIAGEVO_DB", f"sqlite:///{home / 'diagevo.db'}")
        plans = [load_plan(home, name) for name in ("study", *BESIDE) if _has(home, name)]
        played = [run for plan in plans for run in collect(plan, url)]
        write(joined(read(), played, planned_runs()))
    runs = read()
    PICTURE.write_text(draw(runs), encoding="utf-8")
    before = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    PAGE.write_text(before + page(runs), encoding="utf-8")
    README.write_text(with_sentences(README.read_text(encoding="utf-8"), runs), encoding="utf-8")
    print(f"{len(runs)} runs: {PAGE}, {RESULTS}, {PICTURE}")


def _has(home: Path, name: str) -> bool:
    return (home / "ablations" / name / "plan.json").exists()


if __name__ == "__main__":
    main()
