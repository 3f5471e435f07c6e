"""What a link of device code needs, and what it would lose."""
