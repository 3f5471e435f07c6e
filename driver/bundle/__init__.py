"""The verbs `bundle` and `link`: lowered here, linked on another machine."""
