"""What is read of a run: the published views, and their rows by type. Decisions and exact figures come from
the fold (`state`), everything else that a screen, a page, a figure or a query shows comes from here."""
