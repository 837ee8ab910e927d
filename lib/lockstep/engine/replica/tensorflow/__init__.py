"""A Keras model as a `Replica`. Importing this imports no TensorFlow: `tensorflow_replica` does."""

from lockstep.engine.replica.tensorflow.replica import TensorFlowReplica, tensorflow_replica

__all__ = ["TensorFlowReplica", "tensorflow_replica"]
