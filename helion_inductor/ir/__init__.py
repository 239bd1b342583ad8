"""The intermediate forms: tile programs and kernel schedules, their text, their rules and their meaning."""

from . import printer as printer  # gives every IR value its str()
