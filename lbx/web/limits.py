"""The limits of the pages, all of them: what may be sent, by how many, and how long it may take.

What is larger or later is refused, or its connection is closed. Sizes are bytes unless their names say otherwise.
"""

from __future__ import annotations

HEADER_BYTES = 32 << 10
"""Of a request's first line and headers together: a search in the address and one in the Referer have their place."""
COOKIES = 4
"""Cookies of lbx's name that are looked at: a browser sends the one of the page's own path first."""
FORM_BYTES = 256 << 10
"""Of a form."""
PAIR_BYTES = 16 << 20
"""Of the form of a question and its answer, which may be as long as a dataset's."""
FIELDS = 10_000
"""Of a form."""
NUMBER_DIGITS = 15
"""Of a number in an address or a form."""
SEARCH_CHARACTERS = 1_000
"""Of what is looked for."""

BACKLOG = 32
"""Connections that wait to be accepted, and that asyncio accepts in one turn: it takes four turns to close one again,
so four times this many are open for a moment beyond those that are kept."""
STRANGERS = 64
"""Connections that have shown no link yet. One more, and the oldest of them goes."""
OF_A_PERSON = 32
"""Connections of one link; a browser opens six. One more, and the oldest of them goes."""
REQUEST_S = 60
"""From a connection, or the last answer on it, to the end of a request."""
GRACE_S = 3
"""For what is being answered at the end."""
