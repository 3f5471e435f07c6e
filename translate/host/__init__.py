"""The host part of a program: launches, streams, memory, and what C may call."""
