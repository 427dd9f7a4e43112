"""From two recordings and the rules to a verdict."""
