"""Starting nodes and helpers, and seeing to it that nobody is left behind."""
