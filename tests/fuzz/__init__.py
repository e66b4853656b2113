"""Fuzzing of the decoders: the corpus, mutated. `python -m tests.fuzz --seconds 600` goes on for longer."""
