"""The row of an embedding that is for padding does not move, with signal norm or without."""

import pytest
import torch
from torch import nn

from gradless.pytorch import AMC


@pytest.mark.parametrize("signal_norm", [False, True])
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.filterwarnings("ignore:signal norm has not seen")  # a bag of rows has lambda 1
def test_the_row_for_padding_stays_and_all_others_move(kind, signal_norm):
    table = kind(5, 3, padding_idx=1)
    before = table.weight.detach().clone()
    optimizer = AMC(table, sigma=0.1, epsilon=0.5, signal_norm=signal_norm, seed=0)
    for _ in range(3):  # mu moves other rows in the second and third
        optimizer.step(lambda: 0.0 * table(torch.tensor([[0, 1]])).sum())
    assert optimizer.num_accepted == 3
    assert (table.weight != before).all(1).tolist() == [True, False, True, True, True]


def test_a_table_that_is_also_the_weight_of_a_layer_moves_whole():
    model = nn.Sequential(nn.Embedding(4, 3, padding_idx=0), nn.Linear(3, 4, bias=False))
    model[1].weight = model[0].weight
    before = model[0].weight.detach().clone()
    AMC(model, seed=0).step(lambda: 0.0)
    assert (model[0].weight != before).all()
