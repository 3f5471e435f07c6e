"""Device operations that stock passes lower wrongly or not at all, rewritten or refused."""
