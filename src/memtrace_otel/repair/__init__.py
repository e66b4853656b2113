"""From attributed failures to a change of the memory system: a plan, and a closed loop that tests each change."""
