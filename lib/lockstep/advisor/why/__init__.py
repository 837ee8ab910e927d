"""The path from "slower with more workers" to its cause: what is measured or sampled, and what follows from it.

    observations     what was seen of the reader's own model: cells that differ in one thing each    no torch
    decision         the path: observations -> causes, the one with the largest gain first           no torch
    observe_own      measures them on real workers                                                   torch
    script           what was seen of a script of somebody else, and the path for it                 no torch
    sampling         reads a tree of processes from /proc                                            no torch
    observe_script   starts a script, samples it and ends it                                         no torch
"""
