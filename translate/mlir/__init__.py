"""MLIR text: the one reader of it, its operations as objects, and rewrites of them."""
