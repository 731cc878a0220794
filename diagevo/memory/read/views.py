"""The published views: each is defined here, once, for both databases.

What does not count any more is left out here and nowhere else: events of superseded rounds, observations that
went with an abandoned attempt, groups that a resumed training voided (`ingested_group` has none). `v_event`
alone has them. `round` is the round that counts: that of a group is the one that plays it now, or will.
"""

from sqlmodel import SQLModel

from diagevo.memory.log.tables import CauseHistoryRow, RoundSummaryRow

ABOUT: dict[str, str] = {
    "v_round": "one row per committed round: F, its reference, epsilon that it was drawn with,"
    " epsilon_committed of the next as this commit recorded it (where settings or a dismissal change it"
    " later, the next round is drawn with another: its own epsilon), counts, the hash of the state;"
    " superseded_at and superseded_by, if it no longer counts",
    "v_superseded": "one row per superseding: rounds first to last no longer count, and why",
    "v_cause": "one row per cause, as of the last commit, with its node",
    "v_node": "one row per skill node; an absorbed one names its survivor",
    "v_cause_history": "one row per cause and round: state, frequency,"
    " probability_committed, which is p of the next round as that commit recorded it, the failures"
    " that the round counted under it, the questions that aimed at it and their mean p1",
    "v_cause_question": "one row per cause and question: how many of its failures are counted under the"
    " cause, its responses and how many agree or passed",
    "v_cause_rate": "one row per cause with failures: the questions they are on, and how many responses to"
    " those agree or passed",
    "v_candidate": "one row per scored question: mode, aim, votes and what they are, verdict, "
    "why invalid, truth",
    "v_failure": "one row per observed failure: question, stage, step; label, truth,"
    " whether the label is true; what the files say of it",
    "v_own_id": "one row per question or failure that its trainer calls otherwise: our id and its own",
    "v_diagnosis": "one row per diagnosis: verdict, cause or description",
    "v_match": "one row per failure counted under a stored cause: by recurrence or deduplication",
    "v_assignment": "one row per failure that somebody said the cause of: who, and their note",
    "v_promotion": "one row per promotion: mean p1, threshold, closed frequency",
    "v_reactivation": "one row per reactivation, with the promotion it undid",
    "v_question": "one row per scored question, with its text and those of its causes; votes, label, truth",
    "v_trajectory": "one row per observed failure, with its texts; label, truth, the cause it "
    "was counted under",
    "v_response": "one row per response whose text the log keeps: of another trainer's rollouts, else the"
    " failures; verdict, reward, model and tags, the cause that it is counted under, its texts",
    "v_stage": "one row per attempt of a stage that ended: how, its seconds and mean reward",
    "v_checkpoint": "one row per measurement of a policy: benchmark, questions, conditions and metrics",
    "v_phase": "one row per phase of training: what it measured of itself",
    "v_step_metric": "one row per step of training: mean reward over its completions, loss, entropy,"
    " gradient norm, KL",
    "v_group": "one row per group of another trainer's rollouts: its step, prompt, rollouts, "
    "passes and outcome",
    "v_step": "one row per step of another trainer: its groups by outcome, rollouts, passes and pass rate",
    "v_prompt": "one row per prompt of another trainer: its pass rate in the first and in the last step that"
    " had it, its failures and how many have no cause",
    "v_tag": "one row per tag that another trainer's files class prompts by: its groups, rollouts and passes",
    "v_rollouts": "one row per run of another trainer: its rollouts, passes and prompts; how those that came"
    " back changed",
    "v_event": "one row per event, its payload as JSON text",
}
"""Each view and what a row of it is. `run_id` is a column of every one."""


COMMITTED = {
    "epsilon_next": "epsilon_committed",
    "epsilon_next_value": "epsilon_committed_value",
    "probability": "probability_committed",
}
"""Columns of tables, and their names in views."""


def views(dialect: str) -> dict[str, str]:
    """The query of each view for `sqlite` or `postgresql`, each after those that it reads."""
    sqlite = dialect == "sqlite"
    real = "REAL" if sqlite else "double precision"

    def read(name: str, kind: str = "text", event: str = "e") -> str:
        """A field of an event's payload; a flag is 1, 0 or null."""
        if sqlite:
            return f"json_extract({event}.payload, '$.{name}')"
        field = f"({event}.payload::json ->> '{name}')"
        return {
            "int": f"{field}::integer",
            "real": f"{field}::double precision",
            "flag": f"{field}::boolean::integer",
        }.get(kind, field)

    def named(fields: str) -> str:
        """Fields of the payload as columns of their names: `label`, or with a kind, `first:int`."""
        pairs = (field.partition(":") for field in fields.split())
        return ", ".join(f"{read(name, kind)} AS {name}" for name, _, kind in pairs)

    def text(artifact: str) -> str:
        """An artifact's content as text."""
        return f"CAST({artifact}.content AS TEXT)" if sqlite else f"convert_from({artifact}.content, 'UTF8')"

    def counted(*types: str) -> str:
        """Events of rounds that count."""
        return f"""FROM event e JOIN opened_round o ON o.run_id = e.run_id AND o.round = e.round
        AND o.superseded_by IS NULL WHERE e.type IN ({", ".join(f"'{each}'" for each in types)})"""

    def voiding(failure: str) -> str:
        """Abandonings that void a failure or a step: of what that attempt and those before it observed, all
        past the last step that counts."""
        stage, attempt = read("stage", event=failure), read("attempt", "int", failure)
        return f"""SELECT 1 FROM event a WHERE a.run_id = {failure}.run_id AND a.type = 'StageAbandoned'
        AND a.round = {failure}.round AND {read("stage", event="a")} = {stage}
        AND {read("attempt", "int", "a")} >= {attempt}
        AND {read("after_step", "int", "a")} < {read("step", "int", failure)}"""

    def share(part: str, whole: str) -> str:
        return f"CAST({part} AS {real}) / NULLIF({whole}, 0)"

    again = "last_step > first_step"
    first, last = share("first_passes", "first_rollouts"), share("last_passes", "last_rollouts")
    # The round that plays a group, or will: rounds that wait come after those that were opened.
    placed = "COALESCE(o.round, g.batch + COALESCE(w.gone, 0))"
    placing = """LEFT JOIN opened_round o ON o.run_id = g.run_id AND o.batch = g.batch
            AND o.superseded_by IS NULL
        LEFT JOIN (SELECT run_id, count(superseded_by) AS gone FROM opened_round GROUP BY run_id) w
            ON w.run_id = g.run_id"""
    each_reward = (
        "json_each(e.payload, '$.groups') g, json_each(g.value, '$.rewards') r"
        if sqlite
        else "json_array_elements(e.payload::json -> 'groups') g, json_array_elements_text(g -> 'rewards') r"
    )
    one_reward = "r.value" if sqlite else "r::double precision"
    place = "e.run_id, e.position, e.round"

    def elements(list_: str, name: str) -> str:
        """A list in a payload as rows."""
        if sqlite:
            return f"json_each(e.payload, '$.{list_}') {name}"
        return f"json_array_elements(e.payload::json -> '{list_}') WITH ORDINALITY {name}(value, number)"

    nth = "{0}.key" if sqlite else "({0}.number - 1)::integer"

    def member(name: str, field: str, kind: str = "text") -> str:
        """A field of such a row, which is a record."""
        if sqlite:
            return f"json_extract({name}.value, '$.{field}')"
        found = f"({name}.value ->> '{field}')"
        return {"int": f"{found}::integer"}.get(kind, found)

    plain = "{0}.value" if sqlite else "({0}.value #>> '{{}}')"

    def listed(table: type[SQLModel], name: str) -> str:
        """The columns of a table. What a commit recorded of the next round is called so: later settings or a
        dismissal may change it before that round is drawn."""
        return ", ".join(
            f"{name}.{column}" + (f" AS {COMMITTED[column]}" if column in COMMITTED else "")
            for column in table.model_fields
        )

    # What somebody assigned anew is counted under its cause of today.
    moved = """LEFT JOIN (SELECT run_id, round, question_id, cause_id, CAST(sum(failures) AS INTEGER) AS moved
            FROM moved_failure GROUP BY run_id, round, question_id, cause_id) m
            ON m.run_id = q.run_id AND m.round = q.round AND m.question_id = q.question_id
            AND m.cause_id = q.cause_id"""
    # Materialized: asked for each failure, it would be read as often as there are failures.
    under_cause = f"""under AS MATERIALIZED (SELECT e.run_id, e.round,
            {read("failure_id")} AS failure_id, COALESCE({read("via")}, 'new cause') AS via, e.cause_id
            {counted("CauseMatched", "CauseCreated")}),
        said AS MATERIALIZED (SELECT run_id, failure_id, CASE WHEN failures > 0 THEN cause_id END AS cause_id
            FROM (SELECT m.*, row_number() OVER (PARTITION BY run_id, failure_id ORDER BY position DESC)
                AS place FROM moved_failure m) latest WHERE place = 1)"""

    def spelled(round_: str, question: str, sample: str | None = None) -> str:
        """An id: r1.q7, or r1.q7.a3."""
        return f"'r' || {round_} || '.q' || {question}" + (f" || '.a' || {sample}" if sample else "")

    passed_count = (
        "json_array_length(e.payload, '$.passed')"
        if sqlite
        else "json_array_length(e.payload::json -> 'passed')"
    )
    first_alone = f"COALESCE({passed_count}, 0) = 0"
    place_of_sample = (
        "CAST(substr(f.failure_id, instr(f.failure_id, '.a') + 2) AS INTEGER)"
        if sqlite
        else "split_part(f.failure_id, '.a', 2)::integer"
    )
    # Each NULL with its type: PostgreSQL names the columns of others otherwise once a dump has been restored.
    none, no_reward, no_sample = (f"CAST(NULL AS {kind})" for kind in ("TEXT", real, "INTEGER"))
    # What a group says of its samples stands in four lists. They are put beside each other by adding them up,
    # in time that grows with the group, as a join of two lists would not.
    sampled = f"""SELECT max(sample) AS sample, max(reward) AS reward, max(failed) AS failed,
        max(passed) AS passed, max(feedback) AS feedback FROM (
            SELECT CASE WHEN max(failed) IS NULL THEN 1 ELSE 0 END AS passing,
                row_number() OVER (PARTITION BY CASE WHEN max(failed) IS NULL THEN 1 ELSE 0 END
                    ORDER BY sample) - 1 AS place,
                sample, max(reward) AS reward, max(failed) AS failed, max(feedback) AS feedback,
                {none} AS passed
            FROM (SELECT {nth.format("rewarded")} AS sample,
                    CAST({plain.format("rewarded")} AS {real}) AS reward, {none} AS failed, {none} AS feedback
                    FROM {elements("rewards", "rewarded")}
                UNION ALL SELECT {member("failing", "sample", "int")}, {no_reward},
                    {member("failing", "trajectory")}, {none} FROM {elements("failed", "failing")}
                UNION ALL SELECT {member("noted", "sample", "int")}, {no_reward}, {none},
                    {member("noted", "text")} FROM {elements("feedback", "noted")}) told
            GROUP BY sample
            UNION ALL SELECT 1, {nth.format("right_one")}, {no_sample}, {no_reward}, {none}, {none},
                {plain.format("right_one")} FROM {elements("passed", "right_one")}
            UNION ALL SELECT 1, 0, {no_sample}, {no_reward}, {none}, {none}, {read("reference")}
                WHERE {first_alone}) beside
        GROUP BY passing, place"""
    # SQLite has no subquery that reads the row beside it, but a function that does.
    sampling = (
        f"""json_each((SELECT json_group_array(json_array(sample, reward, failed, passed, feedback))
            FROM ({sampled}) each)) s"""
        if sqlite
        else f"LATERAL ({sampled}) s"
    )
    names = ("sample", "reward", "failed", "passed", "feedback")
    told = {n: f"json_extract(s.value, '$[{k}]')" if sqlite else f"s.{n}" for k, n in enumerate(names)}
    tag, is_model = plain.format("t"), f"substr({plain.format('t')}, 1, 6) = 'model='"
    models, classes = (
        (f"min(substr({tag}, 7))", f"json_group_array({tag})")
        if sqlite
        else (f"min(substr({tag}, 7))", f"COALESCE(json_agg({tag} ORDER BY t.number), '[]')::text")
    )
    tags = (
        "json_each(g.tags) t"
        if sqlite
        else "json_array_elements(g.tags::json) WITH ORDINALITY t(value, number)"
    )
    of_groups = f"""SELECT g.run_id, g.position, g.round, g.step,
        {spelled("g.round", "g.place")} AS question_id, {told["sample"]} AS sample, g.question,
        COALESCE({told["failed"]}, {told["passed"]}) AS trajectory,
        CASE WHEN {told["failed"]} IS NULL THEN 'passed' ELSE 'failed' END AS verdict,
        {told["reward"]} AS reward, (SELECT {models} FROM {tags} WHERE {is_model}) AS model,
        (SELECT {classes} FROM {tags} WHERE NOT {is_model}) AS tags, {told["feedback"]} AS feedback,
        f.failure_id, f.cause_id
        FROM (SELECT g.run_id, g.position, {placed} AS round, g.step, g.question, g.tags,
            row_number() OVER (PARTITION BY g.run_id, {placed} ORDER BY g.position) - 1 AS place
            FROM ingested_group g {placing}) g
        JOIN event e ON e.position = g.position
        CROSS JOIN {sampling}
        LEFT JOIN failure f ON f.run_id = g.run_id AND f.trajectory = {told["failed"]}
            AND f.failure_id = {spelled("g.round", "g.place", told["sample"])}
        WHERE COALESCE({told["failed"]}, {told["passed"]}) IS NOT NULL"""
    of_failures = f"""SELECT f.run_id, f.position, f.round, f.step, f.question_id,
        {place_of_sample} AS sample, f.question, f.trajectory, CAST('failed' AS TEXT), {no_reward},
        {none}, CAST('[]' AS TEXT), f.feedback, f.failure_id, f.cause_id
        FROM failure f WHERE NOT EXISTS (SELECT 1 FROM ingested_group g WHERE g.run_id = f.run_id)"""
    return {
        "v_event": """SELECT position, event_id, run_id, sequence, round, type, cause_id, payload,
        causation_id, recorded_at FROM event""",
        "v_cause": """SELECT c.run_id, c.cause_id, c.number, c.description, c.node_id, n.label AS node,
        c.state, c.frequency, c.created_round
        FROM cause c JOIN skill_node n ON n.run_id = c.run_id AND n.node_id = c.node_id""",
        "v_node": """SELECT n.run_id, n.node_id, n.number, n.label, n.absorbed_by,
        (SELECT count(*) FROM cause c WHERE c.run_id = n.run_id AND c.node_id = n.node_id) AS causes
        FROM skill_node n""",
        "v_superseded": f"""SELECT e.run_id, e.position, {named("first:int last:int reason")}
        FROM event e WHERE e.type = 'RoundsSuperseded'""",
        "v_round": f"""SELECT {listed(RoundSummaryRow, "r")}, o.superseded_at, o.superseded_by,
        (SELECT {read("epsilon")} FROM event e
            WHERE e.run_id = r.run_id AND e.sequence = r.first_sequence) AS epsilon
        FROM round_summary r JOIN opened_round o ON o.run_id = r.run_id AND o.round = r.round""",
        "v_cause_history": f"""SELECT {listed(CauseHistoryRow, "h")} FROM cause_history h
        JOIN opened_round o ON o.run_id = h.run_id AND o.round = h.round AND o.superseded_by IS NULL""",
        "v_cause_question": f"""SELECT q.run_id, q.round, q.question_id, q.cause_id, q.question, q.responses,
        q.first, q.failures + COALESCE(m.moved, 0) AS failures
        FROM cause_question q JOIN opened_round o ON o.run_id = q.run_id
        AND o.round = q.round AND o.superseded_by IS NULL
        {moved} WHERE q.failures + COALESCE(m.moved, 0) > 0""",
        # Committed rounds are added up in their history, but for those of which a failure was assigned anew.
        # One SELECT: into a UNION SQLite takes no run's name.
        "v_cause_rate": f"""SELECT o.run_id, COALESCE(h.cause_id, q.cause_id) AS cause_id,
        sum(COALESCE(h.failures, q.failures + COALESCE(m.moved, 0))) AS failures,
        sum(COALESCE(h.questions, 1)) AS questions,
        sum(COALESCE(h.responses, q.responses)) AS responses, sum(COALESCE(h.first, q.first)) AS first,
        {share("sum(COALESCE(h.first, q.first))", "sum(COALESCE(h.responses, q.responses))")} AS pass_rate
        FROM opened_round o LEFT JOIN round_summary r ON r.run_id = o.run_id AND r.round = o.round
            AND NOT EXISTS (SELECT 1 FROM moved_failure f WHERE f.run_id = o.run_id AND f.round = o.round)
        LEFT JOIN cause_history h ON h.run_id = o.run_id AND h.round = r.round AND h.failures > 0
        LEFT JOIN cause_question q ON q.run_id = o.run_id
            AND q.round = CASE WHEN r.round IS NULL THEN o.round END
        {moved}
        WHERE o.superseded_by IS NULL AND COALESCE(h.failures, q.failures + COALESCE(m.moved, 0)) > 0
        GROUP BY o.run_id, COALESCE(h.cause_id, q.cause_id)""",
        "v_candidate": f"""SELECT {place}, {named("question_id mode")}, e.cause_id,
        {named("stitched_cause_id responses:int first:int second:int label verdict question reference")},
        {named("votes invalid_reason undecided:int truth label_true:flag drawn_round:int votes_are")}
        {counted("CandidateScored")}""",
        "v_failure": f"""SELECT {place}, {named("failure_id question_id stage attempt:int step:int")},
        {named("trajectory reference feedback")}, {read("right", "flag")} AS right_answer,
        COALESCE({read("against")}, 'response') AS against, {read("question", event="asked")} AS question,
        {read("label", event="asked")} AS label, {read("truth", event="asked")} AS truth,
        {read("label_true", "flag", "asked")} AS label_true
        FROM event e JOIN opened_round o ON o.run_id = e.run_id AND o.round = e.round
        AND o.superseded_by IS NULL
        LEFT JOIN event asked ON asked.run_id = e.run_id AND asked.event_id = e.causation_id
        WHERE e.type = 'FailureObserved' AND NOT EXISTS ({voiding("e")})""",
        "v_own_id": f"""SELECT {place}, {named("named own_id")} {counted("IdGiven")}""",
        "v_diagnosis": f"""SELECT {place}, {named("failure_id attempt:int verdict")},
        e.cause_id, {named("description")} {counted("FailureDiagnosed")}
        AND NOT EXISTS (SELECT 1 FROM event f WHERE f.run_id = e.run_id AND f.event_id = e.causation_id
            AND EXISTS ({voiding("f")}))""",
        "v_match": f"""SELECT {place}, e.cause_id, {named("failure_id via")} {counted("CauseMatched")}""",
        "v_assignment": f"""SELECT e.run_id, e.position, m.round, m.failure_id, e.cause_id,
        {named("by note")}, e.recorded_at
        FROM moved_failure m JOIN event e ON e.position = m.position
        WHERE e.type = 'FailureAssigned' AND {read("undo", "flag")} = 0
        AND NOT EXISTS (SELECT 1 FROM moved_failure later WHERE later.run_id = m.run_id
            AND later.failure_id = m.failure_id AND later.position > m.position)""",
        "v_promotion": f"""SELECT {place}, e.cause_id,
        {named("questions:int consistency threshold closed_frequency:int")} {counted("CausePromoted")}""",
        "v_reactivation": f"""SELECT {place}, e.cause_id, {named("failure_id promotion")}
        {counted("CauseReactivated")}""",
        "v_question": f"""SELECT c.run_id, c.position, c.round, c.question_id, c.mode,
        c.cause_id, aim.description AS cause, c.stitched_cause_id, beside.description AS stitched_cause,
        {text("asked")} AS text, c.votes, c.votes_are, c.responses, c.first, c.second, c.label,
        c.truth, c.label_true, c.verdict, c.invalid_reason
        FROM v_candidate c
        LEFT JOIN artifact asked ON asked.digest = c.question
        LEFT JOIN cause aim ON aim.run_id = c.run_id AND aim.cause_id = c.cause_id
        LEFT JOIN cause beside ON beside.run_id = c.run_id AND beside.cause_id = c.stitched_cause_id""",
        "v_trajectory": f"""WITH {under_cause}
        SELECT f.run_id, f.position, f.round, f.failure_id, f.attempt,
        f.question_id, {text("asked")} AS question, {text("failed")} AS trajectory,
        {text("agreed")} AS reference, f.label, f.truth, f.label_true, f.right_answer, f.against,
        CASE WHEN said.run_id IS NULL OR said.cause_id = under.cause_id THEN under.via
            WHEN said.cause_id IS NOT NULL THEN 'assigned' END AS via,
        CASE WHEN said.run_id IS NULL THEN under.cause_id ELSE said.cause_id END AS cause_id,
        cause.description AS cause, {text("feedback")} AS feedback
        FROM v_failure f
        LEFT JOIN under ON under.run_id = f.run_id AND under.round = f.round
            AND under.failure_id = f.failure_id
        LEFT JOIN said ON said.run_id = f.run_id AND said.failure_id = f.failure_id
        LEFT JOIN cause ON cause.run_id = f.run_id
            AND cause.cause_id = CASE WHEN said.run_id IS NULL THEN under.cause_id ELSE said.cause_id END
        LEFT JOIN artifact asked ON asked.digest = f.question
        LEFT JOIN artifact failed ON failed.digest = f.trajectory
        LEFT JOIN artifact agreed ON agreed.digest = f.reference
        LEFT JOIN artifact feedback ON feedback.digest = f.feedback""",
        "v_response": f"""WITH {under_cause},
        failure AS MATERIALIZED (SELECT f.run_id, f.position, f.round, f.step, f.question_id, f.failure_id,
            f.question, f.trajectory, f.feedback,
            CASE WHEN said.run_id IS NULL THEN under.cause_id ELSE said.cause_id END AS cause_id
            FROM v_failure f
            LEFT JOIN under ON under.run_id = f.run_id AND under.round = f.round
                AND under.failure_id = f.failure_id
            LEFT JOIN said ON said.run_id = f.run_id AND said.failure_id = f.failure_id)
        SELECT r.run_id, r.position, r.round, r.step, r.question_id, r.sample, r.question, r.trajectory,
        r.feedback AS feedback_digest, r.verdict, r.reward, r.model, r.tags, r.failure_id, r.cause_id,
        cause.description AS cause,
        (SELECT {text("asked")} FROM artifact asked WHERE asked.digest = r.question) AS prompt,
        (SELECT {text("given")} FROM artifact given WHERE given.digest = r.trajectory) AS response,
        (SELECT {text("said")} FROM artifact said WHERE said.digest = r.feedback) AS feedback
        FROM ({of_groups} UNION ALL {of_failures}) r
        LEFT JOIN cause ON cause.run_id = r.run_id AND cause.cause_id = r.cause_id""",
        "v_stage": f"""SELECT {place}, {named("stage attempt:int")}, CASE WHEN e.type = 'StageCompleted'
            THEN 'completed' ELSE 'abandoned' END AS ended,
        {named("seconds:real reward:real parts after_step:int")}, {read("reason")} AS reason
        {counted("StageCompleted", "StageAbandoned")}""",
        "v_checkpoint": f"""SELECT {place}, {named("role benchmark checkpoint questions:int")},
        {named("conditions metrics seconds:real")} FROM event e WHERE e.type = 'CheckpointEvaluated'
        AND NOT EXISTS (SELECT 1 FROM opened_round o WHERE o.run_id = e.run_id AND o.round = e.round
            AND o.superseded_by IS NOT NULL)""",
        "v_phase": f"""SELECT {place}, {named("stage attempt:int steps:int first_kl:real sampling_gap:real")},
        {named("reward_lowest:real reward_highest:real completions:int cut_off:int attention findings")}
        {counted("PhaseMeasured")}""",
        "v_step_metric": f"""SELECT {place}, {named("stage attempt:int step:int")},
        (SELECT count(*) FROM {each_reward}) AS completions,
        (SELECT avg({one_reward}) FROM {each_reward}) AS reward,
        {named("loss:real entropy:real grad_norm:real kl:real")}
        {counted("StepTrained")} AND NOT EXISTS ({voiding("e")})""",
        "v_group": f"""SELECT g.run_id, g.position, {placed} AS round,
        g.step, g.attempt, g.place, g.question, {text("asked")} AS prompt, {read("answer")} AS answer,
        g.rollouts, g.passes, {share("g.passes", "g.rollouts")} AS pass_rate,
        CASE WHEN g.passes = 0 THEN 'all_failed' WHEN g.passes = g.rollouts THEN 'all_passed'
            ELSE 'contrast' END AS outcome, {read("source")} AS source, g.batch
        FROM ingested_group g {placing}
        LEFT JOIN event e ON e.position = g.position
        LEFT JOIN artifact asked ON asked.digest = g.question""",
        "v_step": f"""SELECT g.run_id, {placed} AS round, g.step, g.groups, g.all_passed, g.contrast,
        g.all_failed, g.rollouts, g.passes, {share("g.passes", "g.rollouts")} AS pass_rate
        FROM ingested_sum g {placing} WHERE g.tag = ''""",
        # A subquery: the text is read of rows that are shown, not of all that are sorted.
        "v_prompt": f"""SELECT p.run_id, p.question,
        (SELECT {text("asked")} FROM artifact asked WHERE asked.digest = p.question) AS prompt,
        p.steps, p.rollouts, p.passes,
        p.first_step, {share("p.first_passes", "p.first_rollouts")} AS first_pass_rate,
        p.last_step, {share("p.last_passes", "p.last_rollouts")} AS last_pass_rate,
        p.rollouts - p.passes AS failures, p.rollouts - p.passes - p.explained AS without_cause, p.position
        FROM ingested_prompt p""",
        "v_tag": f"""SELECT run_id, substr(tag, 2) AS tag, sum(groups) AS groups, sum(rollouts) AS rollouts,
        sum(passes) AS passes, {share("sum(passes)", "sum(rollouts)")} AS pass_rate
        FROM ingested_sum WHERE tag <> '' GROUP BY run_id, substr(tag, 2)""",
        "v_rollouts": f"""SELECT run_id, count(*) AS prompts, sum(rollouts) AS rollouts,
        sum(passes) AS passes, {share("sum(passes)", "sum(rollouts)")} AS pass_rate,
        sum(CASE WHEN passes = 0 THEN 1 ELSE 0 END) AS never_passed, sum(unanswered) AS unanswered,
        sum(rollouts - passes - explained) AS without_cause,
        sum(CASE WHEN {again} THEN 1 ELSE 0 END) AS came_back,
        avg(CASE WHEN {again} THEN {first} END) AS first_pass_rate,
        avg(CASE WHEN {again} THEN {last} END) AS last_pass_rate,
        sum(CASE WHEN {again} THEN ({last} - {first}) * ({last} - {first}) END) AS squared_changes,
        sum(CASE WHEN {again} AND {last} < {first} THEN 1 ELSE 0 END) AS dropped
        FROM ingested_prompt GROUP BY run_id""",
    }
