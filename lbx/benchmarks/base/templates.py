"""Official prompt templates, split around the document: before + document + after is the official text."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping

from lbx.base.errors import BundleError


def fill_format(template: str, values: Mapping[str, str], *, document: str, source: str) -> tuple[str, str, str]:
    """Fill in a ``str.format`` template: the text before the document, the document, and the rest.

    Args:
        template: with fields like ``{context}``; ``{}`` counts up from "0".
        document: the document's name in ``values``; the text is split at its first occurrence.
        source: the template's file, for messages.

    Raises:
        BundleError: the template is invalid, or has a field that ``values`` lacks.
    """
    pieces = [""]
    document_text = ""
    try:
        for literal, name in template_fields(template):
            pieces[-1] += literal
            if name == document and len(pieces) == 1:
                document_text = values[name]
                pieces.append("")
            elif name is not None:
                pieces[-1] += values[name]
    except (ValueError, KeyError) as exc:
        raise BundleError(
            f"Cannot fill in the prompt template in {source}: {exc}.",
            fix="lbx supports only the pinned version of this file; bundle that version.",
            command="lbx bundle RECIPE",
        ) from exc
    return (pieces[0], document_text, pieces[1]) if len(pieces) == 2 else (pieces[0], "", "")


def fill_placeholders(template: str, document: tuple[str, str], values: Mapping[str, str]) -> tuple[str, str, str]:
    """Fill in a template with marks like ``$Q$``: the text before the document, the document, and the rest.

    Args:
        document: the document's mark and its text; a template without the mark gives ("...", "", "").
        values: the other marks, in order. As officially, a mark in a text that was filled in earlier is replaced, too,
            including the document's.
    """
    placeholder, text = document
    before, mark_text, after = template.partition(placeholder)
    pieces = [before, text if mark_text else "", after.replace(placeholder, text)]
    for name, value in values.items():
        pieces = [piece.replace(name, value) for piece in pieces]
    return pieces[0], pieces[1], pieces[2]


def template_fields(template: str) -> Iterator[tuple[str, str | None]]:
    """Yield (literal text, name of the field after it); the last name is None if the template ends in text."""
    count = 0
    for literal, name, spec, conversion in string.Formatter().parse(template):
        if spec or conversion:
            raise ValueError(f"the field {{{name}}} has a conversion or a format")
        yield literal, str(count) if name == "" else name
        count += name == ""
