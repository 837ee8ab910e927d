"""An answer for the reader's own model and machines: calibrate, predict every way to distribute it, find what slows it.

    calibration   what was measured of one model on one machine, as one JSON file          no torch
    predict       calibration + question -> advice: a pure function                        no torch
    measuring/    measures a calibration on real workers                                   torch
    why/          the path from "slower with more workers" to its cause
"""
