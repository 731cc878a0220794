"""Attacks on the program and its log. Beside the tests, which are bounded, each can go on for long:

    python -m tests.attack.kills --kills 1000           writers killed at random moments, on a new SQLite file
    python -m tests.attack.kills --kills 300 --db URL   the same on an empty, migrated PostgreSQL database
    python -m tests.attack.fuzz bytes                   each byte of a small database changed in turn
    python -m tests.attack.fuzz cells                   each cell replaced by each other type
    python -m tests.attack.fuzz readers --sample 100    every reading command on 100 damages by chance

Run from the checkout's root. Each prints what it found, and exits with 1 where something is lost, wrong or
passed over.
"""
