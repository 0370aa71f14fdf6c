"""Gates: what a version must have shown before an alias may move to it.

A gate is declared in an app file and stored as data by `podium deploy`; no user code runs when it is judged.
"""

from registry.gates.rules import Approved, BetterThanBase, BetterThanIncumbent, Gate, Rule, Threshold

__all__ = ["Approved", "BetterThanBase", "BetterThanIncumbent", "Gate", "Rule", "Threshold"]
