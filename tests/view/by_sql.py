"""The database file of a run by SQL alone, without the program, and figures as its pages write them."""

import math
import sqlite3

VIEWS = """
CREATE TEMP VIEW e AS SELECT * FROM event o WHERE run_id = (SELECT id FROM run_now) AND NOT EXISTS
  (SELECT 1 FROM event s WHERE s.run_id = o.run_id AND s.type = 'RoundsSuperseded'
   AND o.type <> 'GroupIngested' AND o.round BETWEEN s.payload ->> '$.first' AND s.payload ->> '$.last');
CREATE TEMP VIEW q AS SELECT round, payload ->> '$.question_id' id, payload ->> '$.cause_id' cause,
  payload ->> '$.verdict' verdict, payload ->> '$.label_true' label_true, payload ->> '$.votes_are' votes_are,
  1.0 * (payload ->> '$.first') / (payload ->> '$.responses') p1 FROM e WHERE type = 'CandidateScored';
CREATE TEMP VIEW f AS SELECT o.round, o.payload ->> '$.failure_id' id, o.payload ->> '$.question_id' question,
  o.payload ->> '$.right' "right" FROM e o WHERE type = 'FailureObserved' AND NOT EXISTS
  (SELECT 1 FROM e a WHERE a.type = 'StageAbandoned' AND a.round = o.round
   AND a.payload ->> '$.stage' = o.payload ->> '$.stage'
   AND a.payload ->> '$.attempt' >= o.payload ->> '$.attempt'
   AND a.payload ->> '$.after_step' < o.payload ->> '$.step');
CREATE TEMP VIEW m AS SELECT round, payload ->> '$.failure_id' id, payload ->> '$.cause_id' cause FROM e
  WHERE type IN ('CauseCreated', 'CauseMatched');
CREATE TEMP VIEW a AS SELECT cause, round, count(*) n, avg(p1) mean FROM q
  WHERE cause IS NOT NULL AND verdict <> 'invalid' GROUP BY cause, round;
CREATE TEMP VIEW pair AS SELECT one.n n1, one.mean m1, two.n n2, two.mean m2
  FROM a one JOIN a two USING (cause) WHERE one.round = (SELECT min(round) FROM a x WHERE x.cause = one.cause)
  AND two.round = (SELECT max(round) FROM a x WHERE x.cause = two.cause) AND one.round < two.round;
CREATE TEMP VIEW v AS SELECT round, payload ->> '$.questions' n, payload -> '$.metrics' metrics FROM e
  WHERE type = 'CheckpointEvaluated' AND payload ->> '$.benchmark' = 'validation';
CREATE TEMP VIEW step AS SELECT payload ->> '$.step' step, count(*) groups,
  sum(payload ->> '$.passes') passes, sum(json_array_length(payload, '$.rewards')) rollouts FROM e
  WHERE type = 'GroupIngested' GROUP BY step;
"""
Z = 1.959964


class Sql:
    """Questions to the file, and figures as the page writes them."""

    def __init__(self, connection: sqlite3.Connection, run: str) -> None:
        connection.execute("CREATE TEMP TABLE run_now (id)")
        connection.execute("INSERT INTO run_now VALUES (?)", [run])
        connection.executescript(VIEWS)
        self._connection = connection

    def rows(self, query: str, *given: object) -> list[tuple]:
        return self._connection.execute(query, given).fetchall()

    def one(self, query: str, *given: object):
        [[value]] = self.rows(query, *given)
        return value

    @property
    def span(self) -> str:
        first, last = self.rows("SELECT min(round), max(round) FROM e WHERE type = 'RoundOpened'")[0]
        return f"round {first}" if first == last else f"rounds {first} to {last}"


def wilson(share: float, n: int) -> tuple[float, float]:
    """As in Wilson (1927): the shares from which `share` is just Z standard errors away."""
    root = math.sqrt(share * (1 - share) / n + (Z / (2 * n)) ** 2)
    low, high = ((share + Z * Z / (2 * n) + sign * Z * root) / (1 + Z * Z / n) for sign in (-1, 1))
    return low, high


def p(value: float) -> str:
    return f"{100 * value:.1f}%"


def plural(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def within(share: float, n: int, unit: str = "question") -> str:
    low, high = wilson(share, n)
    return f"{p(share)} ({p(low)} to {p(high)}, {plural(n, unit)})"
