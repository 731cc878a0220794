r"""Pairs over 190 commands of LaTeX that differ in a number or a letter: none is taken for equal unread."""

import pytest

from diagevo.answers.equivalence import AnswerChecker

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
