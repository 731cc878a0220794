"""How a run went, folded from its events: `rounds` as they were played, `causes` as they changed, `nodes` as
they were merged. Every audit takes what it says of the past from here.

Each part reads only the events that it needs, which the log's indexes find, and streams them.
"""
