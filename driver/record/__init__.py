"""What is kept of a call: dependencies, manifests, what changed, archives to run it again."""
