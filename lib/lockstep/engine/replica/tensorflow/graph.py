"""Forward and backward pass of a Keras model as two functions of flat vectors, traced once per process.

    step     parameters, buffers, images, labels, weights, *masks  ->  loss, gradients, buffers
    predict  parameters, buffers, images                           ->  logits

They have no state: replicas that are threads of one process share them, and a warm worker reuses them for later jobs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.engine.models.layers import Network
from lockstep.engine.replica.tensorflow.model import KerasModel, Piece, build_keras_model

_TRACING = threading.Lock()
_MOST = 8  # networks whose graphs are kept
_traced: dict[Network, Graph] = {}


@dataclass(frozen=True)
class Graph:
    """The two functions, of TensorFlow tensors with any number of samples."""

    keras: KerasModel
    step: Callable[..., tuple[Any, Any, Any]]
    predict: Callable[..., Any]


def graph(network: Network) -> Graph:
    """The traced functions of `network`, made at the first call. TensorFlow must have been started."""
    with _TRACING:  # Keras names layers by counters of the whole process, which are not safe in threads
        if network not in _traced:
            while len(_traced) >= _MOST:
                _traced.pop(next(iter(_traced)))
            _traced[network] = _trace(build_keras_model(network))
        return _traced[network]


def _trace(made: KerasModel) -> Graph:
    import tensorflow as tf

    network, number = made.network, tf.float32
    flat = tf.TensorSpec([made.length], number)
    running = tf.TensorSpec([made.running], number)
    images = tf.TensorSpec([None, *network.shapes[0]], number)
    labels, weights = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None], number)
    masks = [tf.TensorSpec([None, *shape], tf.uint8) for shape in made.masks]
    scale = 1.0 / (1.0 - network.dropout)

    def step(flat: Any, running: Any, images: Any, labels: Any, weights: Any, *masks: Any) -> tuple[Any, Any, Any]:
        kept = [_channels_last(tf.cast(mask, number)) * scale for mask in masks]
        with tf.GradientTape() as tape:
            tape.watch(flat)
            logits, after = _call(made, made.model, flat, running, [_channels_last(images), *kept], training=True)
            loss = tf.reduce_sum(weights * _losses(logits, labels))
        return loss, tape.gradient(loss, flat), _running(made, running, after, tf.shape(images)[0])

    def predict(flat: Any, running: Any, images: Any) -> Any:
        return _call(made, made.plain, flat, running, _channels_last(images), training=False)[0]

    # Nothing here branches on a tensor. AutoGraph would rewrite all of it into files, which a worker leaves behind.
    return Graph(
        made,
        tf.function(step, autograph=False).get_concrete_function(flat, running, images, labels, weights, *masks),
        tf.function(predict, autograph=False).get_concrete_function(flat, running, images),
    )


def _call(made: KerasModel, model: Any, flat: Any, running: Any, inputs: Any, training: bool) -> tuple[Any, list[Any]]:
    """Logits, and the model's non-trainable variables afterwards."""
    trained = _values(flat, made.parameters)
    fixed = _values(running, made.buffers)
    parameters = [trained[id(variable)] for variable in model.trainable_variables]
    others = [fixed.get(id(variable), variable.value) for variable in model.non_trainable_variables]
    return model.stateless_call(parameters, others, inputs, training=training)


def _values(flat: Any, pieces: Sequence[Piece]) -> dict[int, Any]:
    """Keras's values of the variables, by id, from torch's flat vector."""
    import tensorflow as tf

    if not pieces:
        return {}
    cuts = tf.split(flat, [piece.length for piece in pieces])
    shaped = [piece.turn(tf.reshape(cut, piece.shape)) for cut, piece in zip(cuts, pieces, strict=True)]
    return {id(piece.variable): value for piece, value in zip(pieces, shaped, strict=True)}


def _running(made: KerasModel, before: Any, after: Sequence[Any], samples: Any) -> Any:
    """Flat running statistics after the step. torch's are of the unbiased variance, Keras's of the biased one."""
    import tensorflow as tf

    if not made.buffers:
        return before
    values = {id(variable): value for variable, value in zip(made.model.non_trainable_variables, after, strict=True)}
    old = _values(before, made.buffers)
    for layer, pixels in made.normalised:
        key = id(layer.moving_variance)
        kept = layer.momentum * old[key]
        count = tf.cast(samples * pixels, tf.float32)
        values[key] = kept + (values[key] - kept) * count / (count - 1.0)
    return tf.concat([values[id(piece.variable)] for piece in made.buffers], 0)


def _losses(logits: Any, labels: Any) -> Any:
    """Of each sample: binary cross-entropy of one logit, cross-entropy of several."""
    import tensorflow as tf

    if logits.shape[1] == 1:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(labels, tf.float32), logits=logits[:, 0])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def _channels_last(tensor: Any) -> Any:
    import tensorflow as tf

    return tf.transpose(tensor, (0, 2, 3, 1)) if len(tensor.shape) == 4 else tensor
