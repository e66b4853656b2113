"""The agent: a model that walks the graph of one case with read-only tools."""

from memtrace_otel.attribution.agent.agent import AGENT, WITH_RULES, Agent, is_tied

__all__ = ["AGENT", "WITH_RULES", "Agent", "is_tied"]
