"""Every knob of DiagEvo, with the paper's value as its default. No torch."""

from diagevo.config.models import Config

__all__ = ["Config"]
