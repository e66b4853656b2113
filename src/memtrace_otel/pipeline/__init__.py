"""Diagnose failed answers from any source, once or continuously."""
