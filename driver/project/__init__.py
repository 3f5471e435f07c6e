"""The verb `build`: projects, from their manifest to the steps that run here or on a cluster."""
