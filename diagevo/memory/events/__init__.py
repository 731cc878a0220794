"""What can happen to a memory: the event catalogue, and an event as bytes.

Imports no other package of the memory.
"""

from diagevo.memory.events.catalogue import *  # noqa: F403  (the catalogue is this package's face)
