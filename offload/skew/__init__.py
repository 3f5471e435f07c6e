"""Releases that do not fit: files against their readers, tools against what they say they are."""
