"""Answers from passages: the chat models that write them, and the check of what they cite."""
