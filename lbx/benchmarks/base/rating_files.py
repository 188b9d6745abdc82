"""Files of people's ratings that a benchmark's authors' own page writes, in and out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.base.layout import Bundle

if TYPE_CHECKING:
    from lbx.store import Store


@dataclass(frozen=True, slots=True)
class ImportedRatings:
    """What an import did.

    Attributes:
        runs: {the page's key: the run whose answers these are}; ``made`` those that were not there before.
        means: each key's mean rating, as the page shows it.
        notes: a sentence for each thing that was not taken as it stands.
    """

    set_id: str
    rater: str
    questions: int
    ratings: int
    runs: Mapping[str, str]
    made: Sequence[str]
    means: Mapping[str, float]
    notes: tuple[str, ...]


class RatingForm(ABC):
    """A form of such files. Raises UsageError wherever something is wrong with one."""

    name: str
    """Of the format."""

    @abstractmethod
    def read(self, path: Path, rater: str | None) -> Any:
        """What a path holds, for ``write``. Nothing is written.

        Args:
            rater: whose ratings they are, where no file says it.
        """

    @abstractmethod
    def write(self, store: Store, files: Any, *, bundle: Bundle | None, set_id: str | None) -> ImportedRatings:
        """Enter them; the same again replaces the same rows.

        Args:
            bundle: match questions with this bundle's samples.
            set_id: made from the content where none is given: another rater of the same pages joins it.

        Raises:
            StoreError: the results file holds other samples under the same names, or cannot be written.
        """

    @abstractmethod
    def export(
        self, store: Store, set_id: str | None, rater: str | None, *, bundle: Bundle | None, documents: Path | None
    ) -> dict[str, str]:
        """One rater's files: {place in the folder: text}. An imported page comes back to the byte.

        Args:
            set_id, rater: may be None where there is one.
            bundle, documents: where the documents are: a bundle with the benchmark, a file of its lines.
        """
