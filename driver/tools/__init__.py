"""What a build uses: LLVM releases, toolkits, targets, and the identity of them all."""
