"""The built-in scenarios. A composition root: here stacks, faults and checks meet."""
