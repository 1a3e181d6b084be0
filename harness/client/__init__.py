"""The measured clients and their sampler process. They are the instrument, so they are ours."""
