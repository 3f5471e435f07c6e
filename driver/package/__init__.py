"""The verb `package`: device images made elsewhere."""
