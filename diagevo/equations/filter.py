"""Double-confidence filtering (Equation 3 of the paper), in rational arithmetic."""

from diagevo.config.models import FilterConfig
from diagevo.memory.events import CandidateVerdict
from diagevo.selfplay.votes import Votes


def verdict(votes: Votes, settings: FilterConfig) -> CandidateVerdict:
    """Whether a valid candidate is kept for solver training, and if not, why.

    Equation 3: p_low <= p1 <= p_high and p1 >= τ·p2, both on the shares of all N responses. The reasons are
    tried in this order: no_label, too_hard, too_easy, contested. The variant `absolute` leaves out the second
    constraint, `none` both; a candidate without a label is never kept. A candidate whose question cannot be
    read is `invalid`: its caller knows that before there are votes.
    """
    if votes.label is None:
        return "no_label"
    if settings.variant == "none":
        return "kept"
    if votes.p1 < settings.p_low:
        return "too_hard"
    if votes.p1 > settings.p_high:
        return "too_easy"
    if settings.variant == "double" and votes.p1 < settings.tau * votes.p2:
        return "contested"
    return "kept"
