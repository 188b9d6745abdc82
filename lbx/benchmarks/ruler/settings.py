"""Settings of RULER in a bundle: ``ruler/ruler.toml``."""

from __future__ import annotations

from dataclasses import dataclass, fields

from lbx.base.errors import BundleError, UsageError
from lbx.base.layout import Bundle
from lbx.base.tables import check_keys, read_table

SETTINGS_FILE = "ruler/ruler.toml"
_MOST_SAMPLES = 100_000


@dataclass(frozen=True, slots=True)
class RulerSettings:
    """Settings of the authors' scripts that a bundle may change; the defaults are the authors'.

    Attributes:
        samples: number of samples of each task.
        seed: seed of all random draws.
        remove_newline_tab: joins the lines of a sample, like ``--remove_newline_tab``.
        prepare_for_ns: leaves room for a model's template without writing it, like ``--prepare_for_ns``.

    Raises:
        UsageError: a value is of the wrong type or out of range.
    """

    samples: int = 500
    seed: int = 42
    remove_newline_tab: bool = False
    prepare_for_ns: bool = False

    def __post_init__(self) -> None:
        for name, least, most in (("samples", 1, _MOST_SAMPLES), ("seed", 0, 2**32 - 1)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise UsageError(f"{name} in {SETTINGS_FILE} must be a whole number from {least} to {most}.")
        for name in ("remove_newline_tab", "prepare_for_ns"):
            if type(getattr(self, name)) is not bool:
                raise UsageError(f"{name} in {SETTINGS_FILE} must be true or false.")

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> RulerSettings:
        """Read the settings of a bundle, or return the defaults.

        Raises:
            BundleError: the file is not valid.
        """
        path = bundle.file(SETTINGS_FILE)
        if path is None:
            return cls()
        try:
            table, _ = read_table(path, "The settings of RULER")
            check_keys(table, [field.name for field in fields(cls)], f"{path}:")
            return cls(**table)
        except UsageError as exc:
            raise BundleError(exc.cause, fix=exc.fix) from exc
