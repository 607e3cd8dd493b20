"""Models that torch.compile has taken apart: the hooks listen in them too."""

import pytest
import torch
from torch import nn

from gradless.pytorch import AMC


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def train(model, forward, x, steps=30):
    optimizer = AMC(model, sigma=0.05, epsilon=0.1, n_s=5, signal_norm=True, fixed_batch=True, seed=0)
    for _ in range(steps):
        loss = optimizer.step(lambda: forward(x).square().mean())
    return float(loss), [optimizer.state[parameter]["lam"] for parameter in model.parameters()]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", ["mlp", "convolution", "attention", "recurrent"])
def test_a_compiled_model_trains_as_an_eager_one(backend, kind):
    x, results = torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(0)), []
    for is_compiled in (False, True):
        torch.manual_seed(0)
        model = {
            "mlp": lambda: nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 1)),
            "convolution": lambda: nn.Sequential(
                nn.Conv1d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32, 1)
            ),
            "attention": lambda: nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True),
            "recurrent": lambda: Last(nn.GRU(8, 4, num_layers=2, batch_first=True)),
        }[kind]()
        model = torch.compile(model, backend=backend) if is_compiled else model
        results.append(train(model, model, x))
    (loss, lams), (loss_compiled, lams_compiled) = results
    # The compiled net may round otherwise in float32, 1e-7 a step; no decision in 30 steps is that close.
    assert abs(loss - loss_compiled) < 1e-4 * abs(loss)
    torch.testing.assert_close(lams, lams_compiled, rtol=1e-3, atol=0)
    assert any((lam != 1).any() for lam in lams_compiled)


class Last(nn.Module):
    """The output of a recurrent module at the end of the sequence."""

    def __init__(self, recurrent):
        super().__init__()
        self.recurrent = recurrent

    def forward(self, x):
        return self.recurrent(x)[0][:, -1]


def test_the_model_may_be_compiled_after_the_optimizer_is_made_or_given_as_it_was():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 1)), torch.randn(4, 8)
    optimizer = AMC(model, signal_norm=True, seed=0)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for _ in range(5):
        optimizer.step(lambda: compiled(x).square().mean())
    assert optimizer.state[model[0].weight]["lam"] != 1
