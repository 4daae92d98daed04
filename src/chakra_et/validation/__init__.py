"""Validation: a table of rules, and the findings where a trace set breaks them."""

from __future__ import annotations

from chakra_et.validation.findings import Finding, Rule, ValidationReport
from chakra_et.validation.rules import RULES, TARGETS, validate

__all__ = ["RULES", "TARGETS", "Finding", "Rule", "ValidationReport", "validate"]
