"""Everything that crosses a process: Ray actors, their step channel, collectives."""
