"""What the room's functions return, in a form that scripts read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Evidence:
    """A result whose fields are also a JSON object."""

    def to_json(self) -> str:
        """All fields as one JSON object; paths as text."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False, default=str)
