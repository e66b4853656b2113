"""A benchmark with known causes: plant one fault in a run of a memory system, attribute the answer, and score."""
