"""What a reader brings to `lockstep.train`: a model, data, a loss and an optimizer of their own, in the forms in which
torch's users have them. Everything here runs in the caller, before any worker starts, and refuses what can't work."""
