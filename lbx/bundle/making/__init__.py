"""From recipes to an archive: resolve, fetch, check, pack."""
