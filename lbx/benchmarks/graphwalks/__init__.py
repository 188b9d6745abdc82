"""OpenAI GraphWalks."""
