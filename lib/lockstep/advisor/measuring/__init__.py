"""Measures a calibration: the reader's own model, trained by real workers of this machine.

    inputs          what the model takes, and random samples of it              no torch
    references      module:name, with the nearest names where there is none     no torch
    choices         losses and optimizers by name
    own_factory     what makes the model anew in a worker
    own_model       the model: loaded, tried once, refused where it can't be trained
    asked_cells     workers to measure, and what was found
    meter           warm teams that train them for so many seconds
    cells           in turns
    batches         which batches are worth measuring
    calibrate       all that a calibration holds, the most important first
"""
