"""Methods of self-play behind one interface (`interface.py`): what the challenger is asked, how its
completions are read and rewarded, where labels come from, and what the solver's answers earn."""
