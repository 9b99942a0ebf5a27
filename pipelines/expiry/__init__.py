"""Expiry: whole segments leave the log when they are old enough, and what is still owed goes to its end before."""
