"""The verb `inspect`: what files hold of offloading."""
