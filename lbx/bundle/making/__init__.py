"""Make an archive from recipes: resolve, fetch, check, pack."""
