"""Whether answers are what they should be: made together and alone, by one model and another."""
