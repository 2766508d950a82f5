"""Convolutions, norms and attention that cuDNN computes, by family."""
