"""Models in plain JAX: parameters are nested dicts of arrays, a model is an `init` and an `apply` function."""
