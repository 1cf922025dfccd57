"""Probabilities of rare events: which runs to make, and what they say."""
