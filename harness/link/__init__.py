"""Sans-I/O stages that faults are made of: events in, commands out, no socket and no clock of its
own."""
