"""Wordings of kinds and skills."""

from diagevo.arithmetic.slips import KINDS
from diagevo.arithmetic.wordings import CAUSES, LABELS, kind_of, skill, skill_of
from diagevo.diagnosis.embedder import HashingEmbedder

EMBEDDER = HashingEmbedder(1024)


def _least_similar(texts: tuple[str, ...]) -> float:
    rows = EMBEDDER.embed(texts)
    return float((rows @ rows.T).min())


def test_every_kind_has_three_wordings_of_10_to_20_words_and_none_is_shared() -> None:
    phrases = [phrase for kind in KINDS for phrase in CAUSES[kind]]
    assert all(len(CAUSES[kind]) == 3 for kind in KINDS)
    assert len(set(phrases)) == len(phrases)
    assert all(10 <= len(phrase.split()) <= 20 for phrase in phrases)
    assert not any(character.isdigit() for phrase in phrases for character in phrase)
    assert all(kind_of(phrase) == kind for kind in KINDS for phrase in CAUSES[kind])


def test_wordings_of_one_kind_lie_above_the_threshold_of_deduplication() -> None:
    assert min(_least_similar(CAUSES[kind]) for kind in KINDS) > 0.5


def test_every_skill_has_wordings_that_consolidation_can_find() -> None:
    assert {skill(kind) for kind in KINDS} == set(LABELS)
    for name, labels in LABELS.items():
        assert len(set(labels)) == len(labels) >= 2
        assert all(10 <= len(label.split()) <= 20 for label in labels)
        assert all(skill_of(label) == name for label in labels)
        assert _least_similar(labels) > 0.7


def test_other_texts_mean_no_kind_and_no_skill() -> None:
    assert kind_of("misapplies the triangle inequality to side lengths") is None
    assert skill_of("geometry") is None
