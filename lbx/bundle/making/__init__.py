"""Making of an archive from recipes: resolve, fetch, check, pack."""
