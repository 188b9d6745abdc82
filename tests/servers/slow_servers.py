"""Mark of tests that start a vLLM of their own, or a larger model: `just servers-test` runs them, CI does not."""

from __future__ import annotations

import os

import pytest

needs_time = pytest.mark.skipif(os.environ.get("LBX_TEST_SERVERS") != "all", reason="takes minutes: just servers-test")
