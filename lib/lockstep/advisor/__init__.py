"""An answer for the reader's own model and machines: calibrate once, predict every way to distribute it, find what
slows it.

    calibration        what was measured of one model on one machine, as one JSON file      no torch
    calibration_file   reads and writes it, and names what differs                          no torch
    predict            calibration + question -> advice: a pure function                    no torch
    measuring/         measures a calibration on real workers                               torch
    why/               the path from "slower with more workers" to its cause
"""
