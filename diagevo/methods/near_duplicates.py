"""Which questions of a curriculum are near-duplicates."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def distinct(vectors: "np.ndarray", below: float) -> list[int]:
    """Walks from the last row to the first: a row stays if it is near none that stayed.

    Args:
        vectors: (n, d) rows of length 1.
        below: rows whose cosine is this or more are near.

    Returns:
        Indices of the rows that stay, in order.
    """
    import numpy as np

    kept = np.empty_like(vectors)
    places: list[int] = []
    for place in range(len(vectors) - 1, -1, -1):
        if (kept[: len(places)] @ vectors[place] < below).all():
            kept[len(places)] = vectors[place]
            places.append(place)
    return places[::-1]
