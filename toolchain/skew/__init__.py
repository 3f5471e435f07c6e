"""What each release of LLVM knows, and what it would refuse or misread."""
