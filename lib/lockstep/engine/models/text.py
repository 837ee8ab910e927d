"""Two classifiers of texts that are given as numbers of words: an LSTM, and a small transformer encoder.

Inputs travel as the images of this engine do, as one float32 tensor: [n, 1, 1, words], each a whole number below the
size of the vocabulary, which is exact in float32.

Sources: Hochreiter and Schmidhuber 1997, "Long Short-Term Memory"; Vaswani et al. 2017, "Attention Is All You Need"
(arXiv:1706.03762), Figure 1, left.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lockstep.engine.models.check import check_classes

VOCABULARY, WORDS = 10_000, 64


def _words(x: Tensor) -> Tensor:
    """[n, 1, 1, words] float32 -> [n, words] int64."""
    return x.flatten(1).long()


class LSTMOfWords(nn.Module):
    """Embedding, one LSTM, and a linear layer on its last state."""

    def __init__(self, classes: int, width: int = 128, units: int = 512) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, units, batch_first=True)
        self.head = nn.Linear(units, classes)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(_words(x)))
        out: Tensor = self.head(states[:, -1])
        return out


class EncoderOfWords(nn.Module):
    """Embeddings of words and of their places, four encoder layers with the norm first, and the mean over all words.

    Without dropout: attention draws it from torch's one generator, which depends on who else draws.
    """

    def __init__(self, classes: int, width: int = 256, heads: int = 4, layers: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.places = nn.Parameter(0.02 * torch.randn(WORDS, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        encoded = self.encoder(self.embedding(_words(x)) + self.places)
        out: Tensor = self.head(encoded.mean(dim=1))
        return out


def text_lstm(classes: int) -> nn.Module:
    """For texts [n, 1, 1, 64]; returns logits [n, classes]. 2,599,946 parameters for 10 classes.

    Raises ValueError for fewer than 2 classes.
    """
    check_classes(classes, "text_lstm")
    return LSTMOfWords(classes)


def text_transformer(classes: int) -> nn.Module:
    """For texts [n, 1, 1, 64]; returns logits [n, classes]. 5,738,506 parameters for 10 classes.

    Raises ValueError for fewer than 2 classes.
    """
    check_classes(classes, "text_transformer")
    return EncoderOfWords(classes)
