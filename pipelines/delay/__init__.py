"""Delayed and timed messages: waiting through levels, and back to their topics when they are due."""
