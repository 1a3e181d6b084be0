"""HAProxy: how to run it, which of its lines explain what, and what its logs say."""
