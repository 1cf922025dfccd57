"""Recall against one or several wanted ids."""

from __future__ import annotations

import numpy as np
import pytest

from nandcosim.errors import InputError
from nandcosim.systems.dnova.recall import recall_at, recall_per_query

RETRIEVED = np.array([[3, 1, 4], [1, 5, -1], [9, 2, 6]])


def test_several_relevant_ids() -> None:
    reference = [
        (1, 7),
        (5,),
        (),
    ]
    np.testing.assert_array_equal(recall_per_query(RETRIEVED, reference, 2), [0.5, 1.0, np.nan])
    assert recall_at(RETRIEVED, reference, 2) == 0.75
    assert recall_at(RETRIEVED, reference, 1) == 0.0


def test_padding_counts_on_neither_side() -> None:
    assert recall_per_query(RETRIEVED, np.array([[3, -1], [-1, -1], [2, 9]]), 3)[
        [0, 2]
    ].tolist() == [1, 1]
    assert np.isnan(recall_at(RETRIEVED, [(), (), ()], 3))


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="3 queries retrieved, 1 in the reference"):
        recall_at(RETRIEVED, [(1,)], 1)
    with pytest.raises(InputError, match=r"k = 4, allowed: 1 \.\. 3"):
        recall_at(RETRIEVED, [(1,)] * 3, 4)
