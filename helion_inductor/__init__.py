"""helion_inductor: ``torch.compile(model, backend="helion")``."""

__version__ = "0.1.0"
