"""Reading a run: the published views, and their typed rows. Decisions and exact figures come from the fold
(`state`); everything else that a screen, a page, a figure or a query shows comes from here."""
