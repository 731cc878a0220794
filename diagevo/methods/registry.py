"""The methods by name."""

from diagevo.methods.absolute_zero import AbsoluteZero
from diagevo.methods.context import PlayContext
from diagevo.methods.darc import Darc
from diagevo.methods.interface import Method
from diagevo.methods.r_few import RFew
from diagevo.methods.self_play import SelfPlay
from diagevo.methods.spice import Spice


def method_of(context: PlayContext) -> Method:
    """The method that the configuration names."""
    match context.config.method:
        case "diagevo" | "r-zero":
            return SelfPlay(context)
        case "r-few":
            return RFew(context)
        case "absolute-zero":
            return AbsoluteZero(context)
        case "darc":
            return Darc(context)
        case "spice":
            return Spice(context)
