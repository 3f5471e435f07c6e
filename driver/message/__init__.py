"""What is said to people and to machines: text, JSON, SARIF, GitHub annotations."""
