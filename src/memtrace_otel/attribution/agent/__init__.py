"""The agent: a model that walks the graph of one case with read-only tools."""

from memtrace_otel.attribution.agent.agent import ABSTAINED, AGENT, WITH_RULES, Agent, is_tied

__all__ = ["ABSTAINED", "AGENT", "WITH_RULES", "Agent", "is_tied"]
