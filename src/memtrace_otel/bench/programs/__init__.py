"""Programs of the real systems: each is an assistant with memory, told a conversation and asked one question."""
