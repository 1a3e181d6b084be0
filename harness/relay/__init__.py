"""The process that moves bytes on hops, stamps both legs and breaks what it is told to break."""
