"""The rules, one module each; see ``_registry``."""
