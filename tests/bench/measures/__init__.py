"""One module per subject with a function `measure()` that yields `Measure`s; a new module joins by being here."""
