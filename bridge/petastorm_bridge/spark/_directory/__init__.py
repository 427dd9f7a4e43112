"""The directories of conversions: where they are, who owns them, when they go."""
