"""`gitops demo`: a scratch fleet that is pushed to, damaged, killed and mended before one's eyes."""
