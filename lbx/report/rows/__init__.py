"""Reports: one file each, with the object that defines it."""
