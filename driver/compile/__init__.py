"""From sources to objects: the steps, their order, and the device images of each kind."""
