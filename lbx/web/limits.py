"""All limits of the web server: sizes of requests, numbers of connections, and times.

Requests beyond a limit are refused, or the connection is closed. Sizes are in bytes unless a name contains another
unit.
"""

from __future__ import annotations

HEADER_BYTES = 32 << 10
"""Size of a request's first line and headers, which is enough for a search in the URL and a search in the Referer."""
ADDRESS_BYTES = 24 << 10
"""Size of a path with the query. A search for the longest text takes half of this size."""
COOKIES = 4
"""Number of cookies named lbx that are checked. A browser sends the cookie of the page's own path first."""
FORM_BYTES = 256 << 10
"""Size of a form."""
PAIR_BYTES = 16 << 20
"""Size of the form of a question and an answer, which datasets may contain in any length."""
FIELDS = 10_000
"""Number of fields of a form."""
NUMBER_DIGITS = 15
"""Number of digits of a number in a URL or a form."""
SEARCH_CHARACTERS = 1_000
"""Length of a search text."""

BACKLOG = 32
"""Connections waiting to be accepted, and accepted by asyncio in one turn of its loop. Closing a connection takes four
turns, so up to four times this number are briefly open in addition to the kept ones."""
STRANGER_CONNECTIONS = 64
"""Connections without a valid link. Beyond this number the oldest is closed."""
CONNECTIONS_PER_PERSON = 32
"""Connections per link. A browser opens six. Beyond this number the oldest is closed."""
REQUEST_S = 60
"""Seconds from a new connection, or the last response on it, to the end of a request."""
GRACE_S = 3
"""Seconds for open responses at shutdown."""
