"""People's ratings in the results file: sets are entered once, ratings only added."""

from __future__ import annotations

from collections.abc import Sequence

from lbx.store.inserting import insert
from lbx.store.rows import RatingItemRow, RatingRow, RatingSetRow
from lbx.store.store import Store


def write_ratings(
    store: Store,
    *,
    sets: Sequence[RatingSetRow] = (),
    items: Sequence[RatingItemRow] = (),
    ratings: Sequence[RatingRow] = (),
) -> None:
    """Commit rows, all or none; a row with the same key replaces the old one.

    Raises:
        StoreError: the disk is full or the file cannot be written; nothing of this batch is in it then.
    """
    with store.transaction() as connection:
        insert(connection, "rating_sets", sets)
        insert(connection, "rating_items", items)
        insert(connection, "ratings", ratings)
