"""Every knob of DiagEvo, with the paper's value as its default. No torch."""
