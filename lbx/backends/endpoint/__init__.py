"""Backend for servers that speak the OpenAI protocol."""
