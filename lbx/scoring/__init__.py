"""From answers to scores, and from scores to official numbers with their intervals."""
