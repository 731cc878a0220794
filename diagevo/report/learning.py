"""What a run learned by round: accuracy, how right its labels were, how hard and long its questions, and
what the memory did."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from diagevo.evaluation.oracle import self_play_round
from diagevo.evaluation.protocol import AT_BEST, colder, estimate
from diagevo.report.figure import (
    CHANGES,
    GREY,
    STATES,
    Figure,
    Missing,
    Rows,
    altair,
    bottom_legend,
    by_order,
    colours,
    data,
    lines,
    no_rounds,
    percent,
    setting,
    sized,
    x_round,
)
from diagevo.report.paper_tables import GROUPS, by_protocol, judged_by, judges
from diagevo.report.report_data import Material


def _row(run: str, round_: int, series: str, value: float, error: float | None) -> dict[str, Any]:
    """A point with its error bar; without one if another trainer measured no standard error."""
    spread = error or 0.0
    return {
        "run": run,
        "round": round_,
        "series": series,
        "accuracy": percent(value),
        "low": percent(value - spread),
        "high": percent(value + spread),
        "standard_error": None if error is None else percent(error),
    }


def _lines(rows: Rows, runs: int, title: str, y: str = "accuracy", baseline: Rows | None = None) -> Any:
    family = by_order(row["series"] for row in rows)
    chart = lines(rows, y, title, "series", family, runs=runs, most=100, band=("low", "high"))
    if baseline:
        alt = altair()
        rule = alt.Chart(data(baseline)).mark_rule(strokeDash=[2, 3], color=GREY).encode(y="accuracy:Q")
        text = (
            alt.Chart(data(baseline))
            .mark_text(align="left", dx=3, dy=-6, color="#555555", fontSize=10)
            .encode(y="accuracy:Q", text="label:N", x=alt.value(0))
        )
        chart = alt.layer(chart, rule, text)
    return sized(chart)


def averages(material: Material, names: Sequence[str]) -> dict[int, tuple[float, float]]:
    """By round: the mean over the benchmarks and its standard error, if all were fully measured."""
    found = {}
    for number, of_round in sorted(by_protocol(material.evaluations).items()):
        metrics = [e.metrics for name in names if (e := of_round.get(name)) and e.metrics]
        if len(metrics) == len(names):
            error = sum(m["score_se"] ** 2 for m in metrics) ** 0.5 / len(metrics)
            found[number] = (sum(m["score"] for m in metrics) / len(metrics), error)
    return found


def performance(materials: Sequence[Material]) -> Figure | Missing:
    rows: Rows = []
    baseline: Rows = []
    parts: list[str] = []
    lacking: set[str] = set()
    for material in materials:
        for name, group in (("mathematical average", "Math Avg."), ("general average", "General Avg.")):
            by_round = averages(material, GROUPS[group])
            rows += [_row(material.run_id, n, name, value, error) for n, (value, error) in by_round.items()]
            if by_round and name not in parts:
                parts.append(name)
        for validation in material.validations:
            if validation.benchmark != "validation":
                continue
            metrics, samples = validation.metrics, validation.conditions.get("samples", "k")
            number, run = validation.round, material.run_id
            for metric, series in (
                ("mean_at_k", f"mean@{samples}, T = 1"),
                ("greedy", "greedy"),
                (AT_BEST, "at its best temperature"),
            ):
                if metric in metrics:
                    rows.append(_row(run, number, series, metrics[metric], metrics.get(f"{metric}_se")))
                elif metric != AT_BEST:
                    lacking.add(metric)
            if material is materials[0]:
                baseline += [
                    {"accuracy": percent(metrics[metric]), "label": f"base model, {heat}"}
                    for metric, heat in colder(metrics).items()
                ]
    if not rows and lacking:
        return Missing(
            f"the validations recorded neither {' nor '.join(sorted(lacking))}",
            f"diagevo eval run all --run {materials[0].run_id} --round all",
        )
    if not rows:
        return Missing(
            "no checkpoint was validated or measured on all benchmarks of a group",
            f"diagevo eval run all --run {materials[0].run_id} --round all",
        )
    caption = "Accuracy of the solver after each round; round 0 is the model it started from. "
    caption += f"{setting(materials, rows)} "
    validated = [v for m in materials for v in m.validations if v.benchmark == "validation"]
    if validated:
        questions = dict.fromkeys(str(v.questions) for v in validated)
        samples = dict.fromkeys(str(v.conditions.get("samples", "k")) for v in validated)
        caption += (
            f"Validation on {' or '.join(questions)} held-out questions that training never sees: the mean"
            f" over {' or '.join(samples)} samples at T = 1, and one greedy answer. "
        )
    if lacking:
        caption += f"Some validations recorded no {' and no '.join(sorted(lacking))}. "
    if baseline:
        whose = f" of run {materials[0].run_id}" if len(materials) > 1 else ""
        caption += (
            f"The dotted line is the base model{whose} at a lower temperature: what sharpening "
            "alone would give. "
        )
    if parts:
        caption += f"The {' and the '.join(parts)}: unweighted over benchmarks measured whole"
        by = judges(
            e for of_round in by_protocol(materials[0].evaluations).values() for e in of_round.values()
        )
        caption += f".{judged_by(by)} "
    caption += "Bars: one standard error over questions."
    if any(row["standard_error"] is None for row in rows):
        caption += " A point without a bar: its standard error was not recorded."
    chart = partial(_lines, rows, len(materials), "accuracy (%)", baseline=baseline)
    return Figure(chart, rows + [row | {"series": row["label"]} for row in baseline], caption)


def label_accuracy(materials: Sequence[Material]) -> Figure | Missing:
    rows: Rows = []
    sources: set[str] = set()
    samples: set[int] = set()
    for material in materials:
        groups = {"kept": ("kept",), "all labelled": None, "removed by τ": ("contested",)}
        for series, verdicts in groups.items():
            for facts in material.rounds:
                known = [
                    float(c.label_true)
                    for c in material.questions(facts.round)
                    if c.label_true is not None and (verdicts is None or c.verdict in verdicts)
                ]
                if known:
                    sources.add("Every label is compared with the answer that the world computes.")
                    share = estimate(known)
                    row = _row(material.run_id, facts.round, series, share.value, share.standard_error)
                    rows.append(row | {"questions": share.questions})
        for label in material.labels:
            if label.accuracy is not None and label.source != "world":
                sources.add("Drawn questions: answers that a human checked.")
                row = _row(
                    material.run_id,
                    label.round,
                    "drawn questions",
                    label.accuracy.value,
                    label.accuracy.standard_error,
                )
                rows.append(row | {"questions": label.checked})
        for evaluation in _after_training(material):
            row = _row(
                material.run_id,
                evaluation.round or 0,
                "after training",
                evaluation.metrics["majority"],
                evaluation.metrics["majority_se"],
            )
            rows.append(row | {"questions": evaluation.questions})
            samples.add(evaluation.conditions["samples"])
    if not rows:
        return _no_answers(materials[0])
    chart = partial(_lines, rows, len(materials), "pseudo-label accuracy (%)")
    caption = " ".join(
        (
            "Share of majority-vote pseudo-labels that are right, by round.",
            *sorted(sources),
            *(
                f"After training: the majority of {n} new responses of the round's trained solver to drawn"
                " questions."
                for n in sorted(samples)
            ),
            setting(materials, rows),
            "Bars: one standard error over questions.",
        )
    )
    return Figure(chart, rows, caption)


def _after_training(material: Material) -> list[Any]:
    """Measurements of each round's trained solver on that round's questions."""
    return [
        evaluation
        for evaluation in material.evaluations
        if evaluation.round
        and evaluation.round == self_play_round(evaluation.benchmark)
        and "majority" in (evaluation.metrics or {})
    ]


def _no_answers(material: Material) -> Missing:
    """The next step towards reference answers."""
    run = f"--run {material.run_id}"
    if not material.rounds:
        return no_rounds(material)
    return Missing("no label has a reference answer", f"diagevo eval labels {run} --check check.csv")


def question_difficulty(materials: Sequence[Material]) -> Figure | Missing:
    rows: Rows = []
    samples: set[int] = set()
    for material in materials:
        for evaluation in material.evaluations:
            number = self_play_round(evaluation.benchmark)
            if evaluation.round == 0 and number is not None and evaluation.metrics:
                error = evaluation.metrics["score_se"]
                row = _row(material.run_id, number, material.run_id, 1 - evaluation.metrics["score"], error)
                row["error_rate"] = row.pop("accuracy")
                rows.append(row | {"questions": evaluation.questions})
                samples.add(evaluation.conditions["samples"])
    if not rows:
        answered = any(c.truth is not None for c in materials[0].candidates) or any(
            line.checked for line in materials[0].labels
        )
        if not answered:
            return _no_answers(materials[0])
        return Missing(
            "the starting solver was not measured on the questions of the rounds",
            f"diagevo eval run selfplay --run {materials[0].run_id} --round 0",
        )
    chart = partial(_lines, rows, 1, "error rate of the starting solver (%)", y="error_rate")
    asked = max(row["questions"] for row in rows)
    caption = (
        f"Difficulty: the error rate of the fixed starting solver on up to {asked} of each round's questions,"
        f" {', '.join(map(str, sorted(samples)))} samples each at T = 1, against reference answers."
        f" {setting(materials, rows)} Bars: one standard error over questions."
    )
    return Figure(chart, rows, caption)


def memory(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.rounds:
        return no_rounds(material)
    rows: Rows = []
    changes: Rows = []
    for facts in material.rounds:
        counts = {"Active": facts.active, "Mastered": facts.mastered, "skill nodes": facts.nodes}
        rows += [{"round": facts.round, "series": name, "count": count} for name, count in counts.items()]
        moved = {
            "created": facts.created,
            "promoted": len(facts.promoted),
            "reactivated": len(facts.reactivated),
        }
        changes += [{"round": facts.round, "change": name, "causes": count} for name, count in moved.items()]
    caption = (
        "Above: error causes that are Active or Mastered, and skill nodes, in the memory committed after each"
        " round. Below: causes created, promoted to Mastered, and reactivated by new failures in the round."
        f" {material.setting}"
    )
    return Figure(partial(_memory_chart, rows, changes), rows + changes, caption)


def _memory_chart(rows: Rows, changes: Rows) -> Any:
    alt = altair()
    states = lines(rows, "count", "number after the round", "series", STATES, zero=True)
    bars = (
        alt.Chart(data(changes))
        .mark_bar()
        .encode(
            x=x_round(),
            y=alt.Y("causes:Q", title="causes in the round", axis=alt.Axis(tickMinStep=1)),
            xOffset=alt.XOffset("change:N", sort=list(CHANGES)),
            color=alt.Color("change:N", scale=colours(CHANGES), sort=list(CHANGES), legend=bottom_legend()),
        )
    )
    return alt.vconcat(sized(states, height=220), sized(bars, height=130)).resolve_scale(
        color="independent", strokeDash="independent", shape="independent"
    )


MEASURES = {
    "math": "mathematical average",
    "mean_at_k": "mean over samples of the validation set",
    "greedy": "greedy answers to the validation set",
}


def measured_by_round(material: Material, measure: str) -> dict[int, float]:
    """Accuracies in [0, 1] by round, of one of `MEASURES`."""
    if measure == "math":
        return {number: value for number, (value, _) in averages(material, GROUPS["Math Avg."]).items()}
    found = (v for v in material.validations if v.benchmark == "validation" and measure in v.metrics)
    return {validation.round: validation.metrics[measure] for validation in found}


def shared_measure(materials: Sequence[Material]) -> str | None:
    """The first of `MEASURES` that most runs have: all curves of a figure use one measure."""
    counts = {m: sum(bool(measured_by_round(each, m)) for each in materials) for m in MEASURES}
    most = max(counts.values(), default=0)
    return next((measure for measure in MEASURES if counts[measure] == most), None) if most else None


def length_and_accuracy(materials: Sequence[Material]) -> Figure | Missing:
    bars: Rows = [
        {
            "run": material.run_id,
            "round": facts.round,
            "words": estimate(words).value,
            "questions": len(words),
        }
        for material in materials
        for facts in material.rounds
        if (words := [len(question.text.split()) for question in material.questions(facts.round)])
    ]
    if not bars:
        return no_rounds(materials[0])
    measure = shared_measure(materials)
    if measure is None:
        hint = f"diagevo eval run all --run {materials[0].run_id} --round all"
        return Missing("no round has been validated or measured", hint)
    points: Rows = [
        {"run": material.run_id, "round": number, "accuracy": percent(value)}
        for material in materials
        for number, value in sorted(measured_by_round(material, measure).items())
        if number
    ]
    caption = (
        "Co-evolution by round. Bars: mean length of the readable questions in words. Lines: the"
        f" {MEASURES[measure]}. {setting(materials, bars)} The paper's (b) and (c) are drawn illustrations."
    )
    runs = [material.run_id for material in materials]
    return Figure(partial(_coevolution, bars, points, runs), bars + points, caption)


def _coevolution(bars: Rows, points: Rows, runs: Sequence[str]) -> Any:
    alt = altair()
    family = by_order(runs)
    colour = alt.Color(
        "run:N", title=None, legend=bottom_legend(), scale=alt.Scale(domain=runs, range=list(family.values()))
    )
    length = (
        alt.Chart(data(bars))
        .mark_bar(opacity=0.35)
        .encode(
            x=x_round(),
            xOffset=alt.XOffset("run:N", sort=runs),
            y=alt.Y("words:Q", title="words a question (bars)"),
            color=colour,
        )
    )
    accuracy = lines(points, "accuracy", "accuracy (%, lines)", "run", family, most=100)
    return sized(alt.layer(length, accuracy).resolve_scale(y="independent"))
