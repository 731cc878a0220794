import json
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagevo.answers.equivalence import AnswerChecker
from diagevo.answers.extraction import boxed_answer, extract_boxed, extract_choice
from diagevo.answers.notation import has_content

CASES = Path(__file__).resolve().parents[3] / "shared" / "data" / "choice_extraction_cases.jsonl"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{ 7 }", "7"),
        (r"\boxed {7}", "7"),
        (r"\\boxed{7}", "7"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right.} end", r"\left\{ x \right."),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{3 \text{ or } \boxed{4}}", "4"),
        (r"\boxed{5} and then \boxed{6", "5"),
        (r"put the answer in \boxed{}", None),
        (r"\boxed{8}, as asked in \boxed{}", "8"),
        (r"\boxed{ }", None),
        (r"\boxed{1", None),
        (r"\boxed 5", "5"),
        (r"$\boxed 42$.", "42"),
        (r"\boxed\frac12", r"\frac12"),
        (r"\boxedness 5", None),
        ("the answer is 5", None),
        ("", None),
        ("\\boxed{a\nb}", "a\nb"),
        (r"\fbox{5}", "5"),
        ("}}}} \\boxed{9}", "9"),
    ],
)
def test_the_last_balanced_box_is_the_vote(text, answer):
    assert extract_boxed(text) == answer


@pytest.mark.parametrize(
    "text", ["\\boxed{" * 20_000, "\\boxed{" * 9_000 + "}" * 9_000, "{" * 100_000 + "}" * 100_000]
)
def test_a_hundred_kilobytes_of_braces_are_read(text):
    assert extract_boxed(text) is None


NOTHING = [
    "", " ", r"\text{}", r"\text{ }", "~", ".", "?", "-", "—", "...", "!?", "_", r"\quad", r"\,", r"\;\ ",
    "\u200b", "\u00a0", r"\phantom{5}", r"\hphantom{\text{5}}", r"\mbox{}", "$$", r"\$", "{}", "()",
    r"\color{red}", r"\left.\right.", r"\boxed{}", r"\hspace{3pt}",
]  # fmt: skip
SOMETHING = [
    "0",
    "x",
    "é",
    "東",
    "½",
    r"\{\}",
    "∅",
    "∞",
    "<",
    "=",
    "+",
    r"\pi",
    r"\text{no}",
    "٣",
    r"\color{red}5",
]


@pytest.mark.parametrize("nothing", NOTHING)
def test_what_says_nothing_is_no_vote(nothing):
    assert not has_content(nothing)
    assert extract_boxed(f"\\boxed{{{nothing}}}") is None
    assert extract_boxed(f"\\boxed{{7}}, \\boxed{{{nothing}}}") == "7"
    with AnswerChecker(workers=1) as checker:
        (votes,) = checker.group([[nothing] * 8])
        assert (votes.label, votes.p1, votes.responses) == (None, 0, 8)
        assert not checker.agree(nothing, nothing)


@pytest.mark.parametrize(
    "answer",
    ["0", "x", "é", "東", "½", r"\{\}", "∅", "∞", "<", "=", "+", r"\pi", r"\text{no}", "٣", r"\color{red}5"],
)
def test_what_says_something_is_a_vote(answer):
    assert has_content(answer)
    assert extract_boxed(f"\\boxed{{{answer}}}") == answer


@given(st.text(alphabet="{}\\boxed 12", max_size=40))
def test_a_box_is_never_blank_and_stands_in_the_text(text):
    answer = extract_boxed(text)
    assert answer is None or (answer.strip() == answer != "" and answer in text)


@given(
    st.text(alphabet=string.ascii_letters + string.digits + " +-", min_size=1, max_size=20).filter(
        lambda answer: any(map(str.isalnum, answer))
    )
)
def test_what_is_put_in_a_box_comes_out(answer):
    assert extract_boxed(f"text \\boxed{{{answer}}} text") == answer.strip()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{1}\boxed{2}", "1, 2"),
        (r"\boxed{1}, \boxed{2} and \boxed{3}", "1, 2, 3"),
        (r"\boxed{1} apples or \boxed{2} pears", "1, 2"),
        (r"\boxed{5}. Checking again, the final answer is \boxed{6}", "6"),
        (r"\boxed{5}, so the answer is \boxed{5}", "5"),
        (r"\boxed{5} \boxed{5}", "5"),
        ("no box", None),
    ],
)
def test_boxes_with_next_to_nothing_between_them_are_one_answer(text, answer):
    assert boxed_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("I think the answer is (B).", "B"),
        ("**Answer:** C", "C"),
        ("Answer: $\\boxed{D}$", "D"),
        ("\\boxed{\\text{(E)}}", "E"),
        ("\\boxed{B. 42}", "B"),
        ("\\boxed{12}", None),
        ("The correct option is D", "D"),
        ("The answer is not A. It is B.", "B"),
        ("The answer is B) 42", "B"),
        ("ANSWER: B", "B"),
        ("So, B", "B"),
        ("The final answer is\n\nD.", "D"),
        ("Let A be a set. Then the answer is C.", "C"),
        ("First I thought the answer is A. Now I see the answer is D.", "D"),
        ("the answer is A or B", None),
        ("A train leaves at noon.", None),
        ("I don't know", None),
        ("none of them", None),
        ("b", "B"),
        ("Answer: b", "B"),
        ("(b)", "B"),
        ("(b) is wrong, answer: C", "C"),
        ("not (b)", None),
        ("Answer: \uff21", "A"),
        ("Answer: a train", None),
        ("\\boxed{c}", "C"),
        ("", None),
    ],
)
def test_a_choice_is_read_or_refused_but_never_guessed(text, letter):
    assert extract_choice(text, "ABCDEFGHIJ") == letter


STATED = [
    (r"\boxed{A + B} so the result. Answer: C", "C"), ("es B, no A", "B"),
    ("La respuesta es B, no A.", "B"), ("A is wrong. B is wrong. D is wrong.", None),
    ("vitamin C deficiency", None), ("The disease is due to vitamin C deficiency", None),
    ("Scurvy is caused by lack of vitamin C.", None),
    ("The answer cannot be A or B. C fails too, so it is D", "D"),
    ("A is incorrect, B is false, C is correct.", "C"), ("A and B are wrong, so C", "C"),
    ("Option A is wrong. Option B is right.", "B"), (r"\boxed{A, C}", None), (r"\boxed{A \cup B}", None),
    (r"\boxed{A = 5}", None), (r"\boxed{B - Paris}", "B"), (r"\boxed{P(A)}", None),
    (r"\boxed{f(A)} Answer: D", "D"), (r"\boxed{\text{(B) 12}}", "B"), (r"\boxed{C}", "C"),
    (r"\boxed{A^2}", None), ("The set A + B is closed. So the answer is D.", "D"), ("Answer = C", "C"),
    ("The answer is clearly B", "B"), ("I'd go with B because it is larger", "B"), ("Clearly C.", "C"),
    ("C", "C"), ("(C)", "C"), ("**C**", "C"), ("C. Paris", "C"), ("C) Paris", "C"),
    ("The correct answer is option C, not B.", "C"), ("It's not A. It's not B. So D.", "D"),
    ("Eliminating A, B leaves C.", "C"), ("Both A and B", None), ("hepatitis B is a virus", None),
    ("Team A beats team B", None), ("Final answer: B", "B"), ("**Final Answer**: (D)", "D"),
    ("The final answer is therefore C.", "C"), ("D is the answer", "D"), ("D is correct", "D"),
    ("I choose B", "B"), ("Die Antwort ist C, nicht A.", "C"), ("La réponse est B, pas A", "B"),
    ("Answer: C. A is false.", "C"), ("A: wrong\nB: wrong\nC: correct\nAnswer: C", "C"),
    ("Answer: C is false", "C"), ("A isn't right; D is.", "D"), ("none of A, B, C, D", None),
    ("the matrix A is singular", None), ("Let A be the event", None), ("The answer is A.", "A"),
    ("My answer: A", "A"), ("B!", "B"), (r"$\boxed{\textbf{(E)}\ 12}$", "E"), ("Solution: D", "D"),
    ("The blood type is B positive, answer D", "D"), ("It must be C since x>0", "C"),
    ("I pick D, as A fails", "D"), ("So C it is.", "C"), ("Choice: B", "B"), ("Grade A student", None),
    ("answer choice B", "B"), ("C: the sun", "C"), ("A ✗ B ✓ C ✗ D ✗", None), ("A ❌\nB ✅\nC ❌", "B"),
    ("B. Wrong, Not wrong", "B"), ("B. No", "B"), ("B) False", "B"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "letter"), STATED)
def test_a_letter_in_a_formula_ruled_out_or_of_a_noun_is_no_choice(text, letter):
    assert extract_choice(text, "ABCDE") == letter


LETTERS = st.permutations("ABCDE")
RULED_OUT = [
    "{} is wrong.",
    "{} is incorrect.",
    "It is not {}.",
    "It can't be {}.",
    "{} fails.",
    "{} isn't right.",
]
NO_CHOICES = [
    "vitamin {} deficiency",
    "the matrix {} is singular",
    "P({}) = 0.5",
    r"${} + x$",
    r"\boxed{{{} \cup X}}",
]
CHOSEN = [
    "Answer: {}",
    "The answer is {}.",
    "So it is {}.",
    "Therefore {}.",
    r"\boxed{{{}}}",
    "I choose ({}).",
]


@given(LETTERS, st.lists(st.sampled_from(RULED_OUT + NO_CHOICES), max_size=4), st.sampled_from(["", *CHOSEN]))
def test_what_is_said_of_other_letters_does_not_choose_one(letters, sayings, chosen):
    others = " ".join(saying.format(letter) for saying, letter in zip(sayings, letters[1:], strict=False))
    said = f"{others} {chosen.format(letters[0])}"
    assert extract_choice(said, "ABCDE") == (letters[0] if chosen else None), said


WRONG = ["wrong", "incorrect", "False", "not correct", "untrue because it is cold"]
RIGHT = ["right", "correct", "True", "correct since x > 0"]
CLAUSES = ["{}: {}", "({}) - {}", "{}) {}", "**{}:** {}", "Option {} is {}", "{} — {}."]


@given(LETTERS, st.integers(2, 5), st.sampled_from(CLAUSES), st.sampled_from(["\n", "; "]), st.data())
def test_a_list_of_verdicts_chooses_the_one_that_is_right(letters, judged, clause, between, data):
    chosen = data.draw(st.integers(0, judged))  # the last is none of them
    said = [data.draw(st.sampled_from(RIGHT if i == chosen else WRONG)) for i in range(judged)]
    clauses = [clause.format(letter, verdict) for letter, verdict in zip(letters, said, strict=False)]
    expected = letters[chosen] if chosen < judged else None
    assert extract_choice(between.join(clauses), "ABCDE") == expected, clauses
    assert extract_choice(between.join([*clauses, f"Answer: {letters[0]}"]), "ABCDE") == letters[0]
    both = [clause.format(letter, "right") for letter in letters[:2]]
    assert extract_choice(between.join(both), "ABCDE") is None


FIRST = ["Answer: {}?", "The answer is {}.", "I think {}.", "{}.", "I choose ({}).", "It's {}..."]
INSTEAD = [
    "Wait, actually {}.", "No, {}.", "Actually, it's {}.", "Sorry, I mean ({}).", "no wait, it must be {}!",
    "On second thought, the answer is {}.", "Hmm. Actually I think the correct answer should be **{}**.",
]  # fmt: skip
NOT_INSTEAD = [
    "No other option fits.", "No, {} is wrong.", "Actually, {} fails.", "Wait, {} has five electrons.",
    "Actually, not {}.", "No, A train is late.", "Actually, {} + 1 is even.",
]  # fmt: skip


@given(LETTERS, st.sampled_from(FIRST), st.sampled_from(INSTEAD), st.sampled_from(NOT_INSTEAD))
def test_a_letter_that_takes_the_place_of_another_is_the_choice(letters, first, instead, no_change):
    one, other, third = letters[:3]
    said = f"{first.format(one)} {instead.format(other)}"
    assert extract_choice(said, "ABCDE") == other, said
    said = f"{first.format(one)} {no_change.format(third)}"
    assert extract_choice(said, "ABCDE") == one, said


def test_only_the_letters_offered_count():
    assert extract_choice("The answer is E.", "ABCD") is None
    assert extract_choice("The answer is E.", ["A", "B", "C", "D", "E"]) == "E"


def test_the_choice_cases_of_the_public_suites_are_right():
    if not CASES.exists():
        pytest.skip("../shared/data is not here")
    for line in CASES.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        same = extract_choice(case["pred"], "ABCD") == extract_choice(case["gold"], "ABCD")
        assert same is case["expected"], case


_BETWEEN = r"""
\pm \mp \times \div \cdot \ast \star \circ \bullet \oplus \ominus \otimes \oslash \odot \cap \cup \uplus
\sqcap \sqcup \vee \wedge \setminus \wr \diamond \amalg \dagger \bmod \pmod \mod \choose \over \atop \to
\rightarrow \leftarrow \Rightarrow \leftrightarrow \Leftrightarrow \mapsto \longrightarrow \longmapsto
\uparrow \downarrow \le \leq \ge \geq \ll \gg \neq \ne \equiv \sim \simeq \approx \cong \propto \prec
\succ \subset \supset \subseteq \supseteq \in \ni \notin \mid \nmid \parallel \perp \vdash \models \asymp
\doteq \bowtie \lor \land \implies \iff \ldots \cdots \dots \colon \quad \qquad \; \, \! \: \ltimes
\rtimes \triangleleft \triangleright \bigcirc
"""
BETWEEN = _BETWEEN.split()
_BEFORE = r"""
\sqrt \sin \cos \tan \cot \sec \csc \arcsin \arccos \arctan \sinh \cosh \tanh \log \ln \lg \exp \det \dim
\ker \gcd \min \max \sup \inf \lim \arg \deg \hom \Pr \overline \underline \hat \bar \vec \dot \ddot
\tilde \widehat \widetilde \overrightarrow \overbrace \underbrace \mathbb \mathbf \mathrm \mathcal
\mathit \mathsf \mathtt \mathfrak \text \textbf \textit \mbox \operatorname \cancel \not \lfloor \lceil
\langle \sum \prod \int \oint \iint \bigcup \bigcap \bigoplus \partial \nabla \infty \Re \Im \aleph \hbar
\ell \wp \forall \exists \neg \angle \triangle \square \alpha \beta \pi \theta \Delta \Omega \degree
\prime \% \$ \# \& \_ \celsius
"""
BEFORE = _BEFORE.split()
OVER = ["\\frac", "\\dfrac", "\\tfrac", "\\cfrac", "\\binom"]
PAIRS = [
    *((f"3 {c} 7", f"4 {c} 7") for c in BETWEEN),
    *((f"a {c} 7", f"b {c} 7") for c in BETWEEN),
    *((f"{{3}} {c} {{5}}", "5") for c in BETWEEN),
    *((f"5 {c} n", f"5 {c} m") for c in BETWEEN),
    *((f"{c}{{a}} + 7", f"{c}{{b}} + 7") for c in BEFORE),
    *((f"5 {c}{{2}}", f"6 {c}{{2}}") for c in BEFORE),
    *((f"{c}_{{1}}^{{3}} 7", f"{c}_{{2}}^{{3}} 7") for c in BEFORE),
    *((f"2{c}{{AB}}", f"2{c}{{CD}}") for c in BEFORE),
    *((f"{c}{{7}}{{3}}", f"{c}{{7}}{{2}}") for c in OVER),
    *((f"{c}{{a}}{{7}}", f"{c}{{b}}{{7}}") for c in OVER),
    *((f"2+{c}{{7}}{{3}}", f"3+{c}{{7}}{{3}}") for c in OVER),
    *((f"{c}{{3}}{{x}}", f"{c}{{3}}{{y}}") for c in OVER),
]


@pytest.mark.slow
def test_of_the_pairs_that_differ_at_most_one_in_a_hundred_agrees() -> None:
    """The one that does: `a \\in 7` is read as the set that the unknown is in."""
    assert len({*BETWEEN, *BEFORE, *OVER}) >= 190
    with AnswerChecker() as checker:
        agreed = [pair for pair, same in zip(PAIRS, checker.agree_many(PAIRS), strict=True) if same]
    assert agreed == [("a \\in 7", "b \\in 7")]
