"""Groups votes in a fresh process: `python -m benchmarks.grouping mathruler|ours [WORKERS] < VOTES`.

R-Zero's way, from its behaviour: each answer is compared with the answers so far, first as a string, then by
`mathruler.grade_answer` in one direction and the other, and joins the first that agrees.
"""

import json
import sys


def by_mathruler(answers_per_question: list[list[str]]) -> list[list[int]]:
    from mathruler.grader import grade_answer

    partitions = []
    for answers in answers_per_question:
        heads: list[str] = []
        members = []
        for answer in answers:
            for group, head in enumerate(heads):
                if answer == head or grade_answer(answer, head) or grade_answer(head, answer):
                    members.append(group)
                    break
            else:
                members.append(len(heads))
                heads.append(answer)
        partitions.append(members)
    return partitions


def by_us(answers_per_question: list[list[str]], workers: int) -> tuple[list[list[int]], int]:
    from diagevo.answers.equivalence import AnswerChecker

    with AnswerChecker(workers=workers) as checker:
        votes = checker.group(answers_per_question)
        return [
            [member for member in vote.members if member is not None] for vote in votes
        ], checker.undecided(votes)


if __name__ == "__main__":
    questions = json.load(sys.stdin)
    if sys.argv[1] == "mathruler":
        result = {"members": by_mathruler(questions), "timeouts": 0}
    else:
        partition, timeouts = by_us(questions, int(sys.argv[2]))
        result = {"members": partition, "timeouts": timeouts}
    json.dump(result, sys.stdout)
