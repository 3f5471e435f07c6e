"""The verb `build`: projects, from their manifest to the steps that run."""
