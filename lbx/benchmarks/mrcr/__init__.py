"""OpenAI MRCR."""
