"""The memory at other points and under other settings: replays, what-ifs, differences."""
