"""A run whose every text is hostile: questions, votes, trajectories, causes, labels, replies, models."""

from pathlib import Path

import diagevo
from diagevo.evaluation.store import Answered, EvaluationStore
from diagevo.memory.events import CheckpointEvaluated, Embedder, Model, RunConfigured
from diagevo.memory.log.database import Database
from tests.memory.audit.played import CONFIG, Player

WORD = "Mississippi"
"""Stands in every text: by it a reader must recognise what was written."""
CONTROLS = "\0\x01\x07\x08\x0b\x1b[31m\x1b[2J\x1b]8;;http://evil\x1b\\link\x1b]8;;\x07\r\x7f\x9b31m"
UNSEEN = "\u202e\u2066\u200b\u200d\ufeff\u2028\u2029\ufffe\uffff\U0001ffff\U000e0041\ud800"
KINDS = (
    f"{WORD}{CONTROLS}{UNSEEN}",
    f"=cmd|'/c calc'!A1 {WORD}",
    f"+1+1 {WORD}",
    f"-2+3 {WORD}",
    f"@SUM(A1) {WORD}",
    f"\t=1+1 {WORD}\r\n=2",
    f"[bold]{WORD}[/bold] [link=http://evil]x[/link] :smiley: [/]",
    f"</script><script>alert('{WORD}')</script><img src=x onerror=alert(1)> &lt; <!-- ",
    f"{WORD} | *a* _b_ `c` [d](http://evil) \\| ~~e~~ $f$\n\n# g\n| h | i |\n",
    f"{WORD} %s %(x)s %n {{0}} {{x}} ${{HOME}} $(id)",
    f"'; DROP TABLE event; -- {WORD} :run \"",
    f'{WORD}","b":1}}\n{{"a":null',
)
ALL = " ".join(KINDS)


class HostilePlayer(Player):
    """Says something hostile with every word."""

    def text(self, words: str) -> str:
        return super().text(f"{ALL} {words}")


def play(url: str, root: Path) -> None:
    """Two rounds, a validation and a benchmark."""
    with diagevo.open(url, "a", root=root) as memory:
        p = HostilePlayer(memory)
        memory.configure(
            RunConfigured(
                config=CONFIG,
                models={"solver": Model(name=ALL, revision=KINDS[0])},
                embedder=Embedder(name=KINDS[0], dimension=4, revision=KINDS[7]),
                version=diagevo.__version__,
            )
        )
        p.open(1)
        p.score(
            p.question(0, [(KINDS[0], 6), (KINDS[1], 3), (KINDS[2], 3)], "kept"),
            *(p.question(1 + n, [(text, 12)], "too_easy") for n, text in enumerate(KINDS)),
        )
        failures = [f"r1.q0.a{n}" for n in range(len(KINDS))]
        for failure, text in zip(failures, KINDS, strict=True):
            p.fail(failure)
            p.diagnose(failure, "new_cause", description=text)
        p.trained()
        for failure, text in zip(failures, KINDS, strict=True):
            p.settle_new(failure, nearest=("c1", 0.1) if failure != "r1.q0.a0" else None, label=text)
        p.merge("n1", "n2", 0.9, ALL)
        p.commit()
        memory.evaluated(
            CheckpointEvaluated(
                role="solver",
                checkpoint=KINDS[0],
                benchmark="validation",
                questions=3,
                conditions={"samples": KINDS[0], KINDS[7]: KINDS[1]},
                metrics={"greedy": 0.5},
            ),
            1,
        )
        p.open(2)
        p.score(
            p.question(0, [(KINDS[8], 9), (KINDS[9], 3)], "kept", "c1"),
            p.question(1, [(KINDS[3], 8), (KINDS[4], 4)], "kept", "c2"),
        )
        p.fail("r2.q0.a0")
        p.recurs("r2.q0.a0", "c1")
        p.trained()
        p.settle_recurrence("r2.q0.a0")
        p.commit()
    _evaluate(url)


def _evaluate(url: str) -> None:
    database = Database(url)
    try:
        store = EvaluationStore(database)
        conditions = {"samples": 1, "temperature": 0.0, "whole": False, "judge": None, "data": KINDS[0]}
        of = {"benchmark": KINDS[0], "model": ALL, "questions": 2, "run": "a", "round": 1}
        key = store.begin(conditions | of)
        texts = [ALL, KINDS[0]]
        asked = [{"role": "user", "content": ALL}]
        store.save(
            key,
            [
                Answered(n, t, "answer", asked, t, [t], [False], [t], [False], [None], None, [False], 0.0)
                for n, t in enumerate(texts)
            ],
        )
        store.finish(key, {"score": 0.0, "score_se": 0.0})
    finally:
        database.close()
